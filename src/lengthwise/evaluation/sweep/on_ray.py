"""Run the cells of an evaluation on Ray: one cell, one Ray task, tried again when its worker dies.

Workers load the model themselves, once a process, and return records; only the driver writes, so they need no shared disk.
Methods and samples travel with the task, an alignment as its content.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeVar

from lengthwise.errors import BadInput, require
from lengthwise.evaluation.sweep.cells import Job, Subject, answer_cell, check_recorded, sharpness_of
from lengthwise.evaluation.sweep.here import SamplesOf, until_none_is_held
from lengthwise.evaluation.sweep.settings import parameters_digest
from lengthwise.evaluation.sweep.todo import Left, Todo, todo
from lengthwise.records import Record, RunDirectory, Sharpness
from lengthwise.tasks import Sample

LOCAL = "local"
RETRIES = 3
# Tasks handed to Ray ahead of free workers, for each of its CPUs: their samples take memory
AHEAD = 4
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Cluster:
    """Where Ray runs, and how its workers get the model."""

    address: str  # "local" starts one on this machine
    source: str  # directory or hub name that workers load
    dtype: str
    device: str
    parameters: str  # digest of the driver's model; a worker's must be the same

    @property
    def gpus(self) -> int:
        """GPUs that one cell needs."""
        return 0 if self.device.startswith("cpu") else 1


@dataclass(frozen=True)
class Errand:
    """All that a worker needs for one cell."""

    cluster: Cluster
    name: str
    train_length: int
    batch_tokens: int
    seed: int
    force: bool
    job: Job
    samples: tuple[Sample, ...]
    todo: Todo


def sweep(
    subject: Subject, cluster: Cluster, jobs: Sequence[Job], run: RunDirectory, samples_of: SamplesOf, left: Left
) -> None:
    """As `lengthwise.evaluation.sweep.here.sweep`, on a cluster."""
    with connected(cluster.address) as ray:

        def attempt(some: Sequence[Job]) -> list[Job]:
            held: list[Job] = []
            with ExitStack() as claims:
                mine = _claimed(some, run, claims, held, left)
                errands = (_errand(subject, cluster, job, found, samples_of) for job, found in mine)
                for errand, (records, sharpness) in spread(ray, answered, errands, cluster.gpus):
                    run.records.append(records)
                    run.sharpness.append([sharpness] if sharpness else [])
                    left.say(errand.job)
                    left.now(errand.job, 0)
            return held

        until_none_is_held(jobs, attempt)


def _claimed(
    jobs: Sequence[Job], run: RunDirectory, claims: ExitStack, held: list[Job], left: Left
) -> Iterator[tuple[Job, Todo]]:
    """Cells with work left, claimed until `claims` closes; those of other processes go to `held`."""
    for job in jobs:
        if not claims.enter_context(run.claim(job.cell)):
            held.append(job)
            continue
        found = todo(job, run)
        left.now(job, found.steps)
        if found.steps:
            yield job, found


def _errand(subject: Subject, cluster: Cluster, job: Job, found: Todo, samples_of: SamplesOf) -> Errand:
    samples = tuple(samples_of(job))
    check_recorded(job, samples, found.recorded)
    common = (subject.name, subject.train_length, subject.batch_tokens, subject.seed, subject.force)
    return Errand(cluster, *common, job, samples, found)


def answered(errand: Errand) -> tuple[list[Record], Sharpness | None]:
    """A worker's part."""
    model, tokenizer = _loaded(errand.cluster)
    common = (errand.name, errand.train_length, errand.batch_tokens, errand.seed, errand.force)
    subject = Subject(model, tokenizer, *common)
    records: list[Record] = []
    if errand.todo.missing:
        answer_cell(subject, errand.job, errand.samples, errand.todo.recorded, records.extend)
    sharpness = sharpness_of(subject, errand.job, errand.samples[0]) if errand.todo.sharpness else None
    return records, sharpness


@lru_cache(maxsize=1)
def _loaded(cluster: Cluster) -> tuple[Any, Any]:
    from lengthwise.models.load import load

    model, tokenizer = load(cluster.source, cluster.dtype, cluster.device)
    if (found := parameters_digest(model)) != cluster.parameters:
        raise BadInput(
            f"{cluster.source} is another model for Ray's workers than for the driver (its parameters are {found}, not "
            f"{cluster.parameters}); give a model that all machines read alike"
        )
    return model, tokenizer


def spread(ray: Any, work: Callable[[Item], Result], items: Iterable[Item], gpus: int = 0) -> Iterator[tuple[Item, Result]]:
    """(item, work(item)) as they get done; a killed worker's item is given to another one, `RETRIES` times."""
    remote = ray.remote(max_retries=RETRIES, num_cpus=1, num_gpus=gpus)(work)
    pending: dict[Any, Item] = {}
    most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    for item in items:
        pending[remote.remote(item)] = item
        while len(pending) >= most:
            yield _next(ray, pending)
    while pending:
        yield _next(ray, pending)


def _next(ray: Any, pending: dict[Any, Item]) -> tuple[Item, Any]:
    done, _ = ray.wait(list(pending))
    item = pending.pop(done[0])
    try:
        return item, ray.get(done[0])
    except ray.exceptions.RayTaskError as error:
        # Ray wraps what a worker raised in a text with the worker's traceback
        if isinstance(error.cause, BadInput):
            raise BadInput(str(error.cause)) from None
        raise
    except ray.exceptions.WorkerCrashedError:
        raise BadInput(f"Ray workers died {RETRIES + 1} times on one cell; it may need more memory than they have") from None


def installed() -> Any:
    try:
        return import_module("ray")
    except ModuleNotFoundError:
        raise BadInput("--ray needs Ray, which is not installed; pip install 'lengthwise[ray]'") from None


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, started or joined, and left as it was found."""
    ray = installed()
    if ray.is_initialized():
        yield ray
        return
    start(address, ray)
    try:
        yield ray
    finally:
        ray.shutdown()


def start(address: str, ray: Any, **options: Any) -> None:
    _check_reachable(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == LOCAL:
        options["include_dashboard"] = False
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        token = "a cluster that asks for a token wants RAY_AUTH_MODE=token and RAY_AUTH_TOKEN in the environment"
        raise BadInput(f"cannot join Ray at {address}: {reason}; {token}") from None


def _check_reachable(address: str) -> None:
    """Ray itself would knock at a wrong address for many minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        require(address in (LOCAL, "auto"), f"a Ray address is HOST:PORT, ray://HOST:PORT or auto, not {address!r}")
        return
    require(port.isdigit(), f"the port of the Ray address {address!r} is not a number")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise BadInput(f"nothing answers at the Ray address {address}: {error.strerror or error}") from None
