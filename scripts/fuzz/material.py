"""What the campaign's commands are given: two tiny models, what real commands made of them, and names that are no files."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.helpers.answering import answering_briefly, saved

WORDS = "the river went on past the mill and nobody in the village asked where it came from or what it carried along "
SETTINGS = """model: llama
out: from_settings
data: [prose.txt]
train_length: 64
steps: 1
learning_rate: 0.001
sampling: 1..L/2
seed: 3
"""
PLUGINS = """from dataclasses import dataclass

from lengthwise.tasks import Task
from lengthwise.tasks.passkey import read, samples, score


@dataclass(frozen=True)
class Law:
    train_length: int
    factor: float = 1.5

    def inverse_temperature(self, visible, layer):
        return (visible.float() / self.train_length).clamp_min(1) ** (0.1 * self.factor)


class Empty: ...


class Raises(Law):
    def __post_init__(self):
        raise RuntimeError("planted")


class Fails(Law):
    def inverse_temperature(self, visible, layer):
        return 1 / 0


class Shapeless(Law):
    def inverse_temperature(self, visible, layer):
        return visible.float().flatten()[:2]


def fails(*given, **named):
    raise KeyError("planted")


ASKED = Task(samples, score, 8, read)
FAILS = Task(fails, score, 8, read)
NOTHING = None
"""
TRAIN = "train llama --data prose.txt --train-length 64 --steps 3 --save-every 1 --out trained"
ANALYSE = "analyse t5 --length 300 --train-length 64 --out analysis"
EVALUATE = "evaluate t5 --task passkey --method none --method log --length 280 --samples 2 --out run"
CALIBRATE = "calibrate t5 --length 300 --train-length 64 --out alignment.json"
RECOMMEND = "recommend t5 --length 300 --train-length 64 --text prose.txt --minutes 0.01 --out recommended"
OF_DEVICES = {"null": os.makedev(1, 3), "full": os.makedev(1, 7)}


def make_material(folder: Path, call: Callable[[Path, Sequence[str]], object]) -> None:
    """Fill a folder; `call` runs a command of lengthwise in it, and raises where it fails."""
    folder.mkdir()
    saved(answering_briefly("t5"), folder / "t5")
    saved(answering_briefly("llama"), folder / "llama")
    answering_briefly("llama").save_pretrained(folder / "sharded", max_shard_size="30KB")
    for file in (folder / "llama").glob("*token*"):
        shutil.copy(file, folder / "sharded")
    (folder / "prose.txt").write_text(WORDS * 60)
    (folder / "settings.yaml").write_text(SETTINGS)
    (folder / "mine.py").write_text(PLUGINS)
    (folder / "broken.py").write_text("class Law(:\n")
    (folder / "scales.json").write_text('{"scales": [1, 2], "window": 16, "train_length": 256}')
    cases = [{"prompt": f"{WORDS}The key is {key}. What is the key?", "target": str(key), "depth": 0.5} for key in (17, 42)]
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    longbench = folder / "longbench"
    longbench.mkdir()
    answers = [{"doc": {"length": words}, "score": 0.5} for words in (900, 5000)]
    (longbench / "samples_longbench_hotpotqa_e_2026.jsonl").write_text("".join(json.dumps(a) + "\n" for a in answers))
    settings = {"model": "lengthwise", "model_args": {"pretrained": "llama"}}
    (longbench / "results_2026.json").write_text(json.dumps({"config": settings}))
    for command in (CALIBRATE, EVALUATE, ANALYSE, TRAIN, RECOMMEND):
        call(folder, command.split())
    # As a killed run leaves it: the next command goes on after the second step
    for made in ("trained/model", "trained/checkpoints/checkpoint-3", "trained/tensorboard", "analysis/figures"):
        shutil.rmtree(folder / made)
    _make_oddities(folder)


def _make_oddities(folder: Path) -> None:
    (folder / "folder").mkdir()
    (folder / "empty.json").touch()
    (folder / "private.json").write_text("{}")
    (folder / "private.json").chmod(0o600)
    (folder / "link.json").symlink_to("alignment.json")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    for name, device in OF_DEVICES.items():
        # Only root makes devices; others get a link, and could not replace what it leads to
        try:
            os.mknod(folder / name, 0o666 | stat.S_IFCHR, device)
        except PermissionError:
            (folder / name).symlink_to(f"/dev/{name}")


def copy_material(folder: Path, place: Path) -> None:
    """A copy that a command may do anything to, pipes, devices and links included."""

    def copy(source: str, target: str) -> None:
        mode = Path(source).lstat().st_mode
        if stat.S_ISFIFO(mode):
            os.mkfifo(target)
        elif stat.S_ISCHR(mode):
            os.mknod(target, mode, Path(source).lstat().st_rdev)
        else:
            shutil.copy(source, target, follow_symlinks=False)

    with suppress(FileNotFoundError):
        shutil.rmtree(place)
    shutil.copytree(folder, place, symlinks=True, copy_function=copy)
