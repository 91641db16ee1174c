"""Run the cells of an evaluation on Ray: one cell, one Ray task, tried again when its worker dies.

Workers load the model themselves, once a process, and return records; only the driver writes, so they need no shared disk.
Methods and samples travel with the task, an alignment as its content, and the code of a user's own FILE.py:NAME by value.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeVar

from lengthwise.common.plugins import modules_of_files, one_line_errors
from lengthwise.errors import BadInput, require
from lengthwise.evaluation.sweep.cells import answer_cell, check_recorded, sharpness_of
from lengthwise.evaluation.sweep.chat import ChatTokenizer
from lengthwise.evaluation.sweep.in_process import SamplesOf, repeat_while_held
from lengthwise.evaluation.sweep.jobs import EvaluatedModel, Job, MissingWork, RemainingWork, missing_work
from lengthwise.evaluation.sweep.run_config import parameters_digest
from lengthwise.records import Record, RunDirectory, Sharpness
from lengthwise.tasks import Sample

LOCAL = "local"
RETRIES = 3
AHEAD = 4  # tasks handed to Ray for each of its CPUs, free or not: their samples take memory
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
class RemoteCell:
    """All that a worker needs to answer one cell."""

    cluster: Cluster
    settings: EvaluatedModel  # its model and tokenizer are None: the worker loads them
    job: Job
    samples: tuple[Sample, ...]
    missing: MissingWork


def run_jobs(
    evaluated: EvaluatedModel,
    cluster: Cluster,
    jobs: Sequence[Job],
    run: RunDirectory,
    samples_of: SamplesOf,
    remaining: RemainingWork,
) -> None:
    """Do what `lengthwise.evaluation.sweep.in_process.run_jobs` does, on a cluster."""
    settings = replace(evaluated, model=None, tokenizer=None)

    def remote_cell(job: Job, missing: MissingWork) -> RemoteCell:
        samples = tuple(samples_of(job))
        check_recorded(job, samples, missing.recorded)
        return RemoteCell(cluster, settings, job, samples, missing)

    with connected(cluster.address) as ray:
        for module in modules_of_files():
            ray.cloudpickle.register_pickle_by_value(module)

        def attempt(some: Sequence[Job]) -> list[Job]:
            held: list[Job] = []
            with ExitStack() as claims:
                cells = (remote_cell(*claimed) for claimed in _claimed(some, run, claims, held, remaining))
                for cell, (records, sharpness) in spread(ray, answer_remotely, cells, cluster.gpus):
                    run.records.append(records)
                    run.sharpness.append([sharpness] if sharpness else [])
                    remaining.announce(cell.job)
                    remaining.update(cell.job, 0)
            return held

        repeat_while_held(jobs, attempt)


def _claimed(
    jobs: Sequence[Job], run: RunDirectory, claims: ExitStack, held: list[Job], remaining: RemainingWork
) -> Iterator[tuple[Job, MissingWork]]:
    """Cells with work left, claimed until `claims` closes; jobs that other processes hold are added to `held`."""
    for job in jobs:
        if not claims.enter_context(run.claim(job.cell)):
            held.append(job)
            continue
        missing = missing_work(job, run)
        remaining.update(job, missing.steps)
        if missing.steps:
            yield job, missing


def answer_remotely(cell: RemoteCell) -> tuple[list[Record], Sharpness | None]:
    """Answer one cell in a worker, with a model that the worker loads once."""
    model, tokenizer = _loaded(cell.cluster)
    evaluated = replace(cell.settings, model=model, tokenizer=ChatTokenizer(tokenizer) if cell.settings.chat else tokenizer)
    records: list[Record] = []
    # The lines of a traceback do not come back
    with one_line_errors(cell.job.label):
        if cell.missing.samples:
            answer_cell(evaluated, cell.job, cell.samples, cell.missing.recorded, records.extend)
        sharpness = sharpness_of(evaluated, cell.job, cell.samples[0]) if cell.missing.sharpness else None
    return records, sharpness


@lru_cache(maxsize=1)
def _loaded(cluster: Cluster) -> tuple[Any, Any]:
    from lengthwise.models.load import load

    model, tokenizer = load(cluster.source, cluster.dtype, cluster.device)
    if (digest := parameters_digest(model)) != cluster.parameters:
        raise BadInput(
            f"{cluster.source} is another model for Ray's workers than for the driver (its parameters are {digest}, not "
            f"{cluster.parameters}); give a model that all machines read alike"
        )
    return model, tokenizer


def spread(ray: Any, work: Callable[[Item], Result], items: Iterable[Item], gpus: int = 0) -> Iterator[tuple[Item, Result]]:
    """Yield (item, work(item)) as they get done; a killed worker's item is given to another one, `RETRIES` times."""
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


def import_ray() -> Any:
    """The package ray, or one line that says how to install it."""
    try:
        return import_module("ray")
    except ModuleNotFoundError:
        raise BadInput("--ray needs Ray, which is not installed; pip install 'lengthwise[ray]'") from None


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Start Ray or join it, and leave it as it was before."""
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    start(address, ray)
    try:
        yield ray
    finally:
        ray.shutdown()


def start(address: str, ray: Any, **options: Any) -> None:
    """Start or join Ray at an address; what Ray says against it becomes one line."""
    _check_reachable(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == LOCAL:
        options["include_dashboard"] = False
    try:
        with _signals_kept(), _on_loopback(address == LOCAL):
            ray.init(address=address, logging_level="ERROR", log_to_driver=False, **options)
    # A start that takes too long has no class of its own
    except Exception as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        require(address != LOCAL, f"cannot start Ray here: {reason}; try again, or leave --ray out")
        token = "a cluster that asks for a token wants RAY_AUTH_MODE=token and RAY_AUTH_TOKEN in the environment"
        raise BadInput(f"cannot join Ray at {address}: {reason}; {token}") from None


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep the handler of SIGTERM, which `ray.init` replaces by one with an exit status of Ray's own."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextmanager
def _on_loopback(local: bool) -> Iterator[None]:
    """Let a local Ray listen on 127.0.0.1 only, as it does on macOS and Windows; no public option asks for that."""
    constants: Any = import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = before and not local
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _check_reachable(address: str) -> None:
    """Refuse a wrong address at once; Ray itself would try it for many minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        require(address in (LOCAL, "auto"), f"a Ray address is HOST:PORT, ray://HOST:PORT or auto, not {address!r}")
        return
    require(port.isdigit(), f"the port of the Ray address {address!r} is not a number")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise BadInput(f"nothing answers at the Ray address {address}: {error.strerror or error}") from None
