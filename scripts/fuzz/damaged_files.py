"""Commands on damaged files: every format that lengthwise reads, and the commands that read it."""

from __future__ import annotations

from pathlib import Path
from random import Random

from scripts.fuzz.damage import damage
from scripts.fuzz.material import ANALYSE, EVALUATE, RECOMMEND, TRAIN

MISALIGNMENT = "misalignment llama --pairs 1 --length 64 --train-length 64 --json"
CALIBRATE = "calibrate t5 --length 300 --train-length 64 --json --out new.json"
SHARDED = "misalignment sharded --pairs 1 --length 64 --train-length 64 --json"
OF_T5 = (CALIBRATE, "evaluate t5 --task passkey --length 280 --samples 1 --out new --json")
REPORT = "report run --out page.html"
LONGBENCH = "longbench longbench --json"
CASES = "evaluate llama --task passkey --data cases.jsonl --samples 2 --json --out new"
# Patterns of file names, and commands that read such a file
READERS: dict[str, tuple[str, ...]] = {
    "alignment.json": (
        "evaluate t5 --method @alignment.json --task passkey --length 300 --samples 1 --out new --json",
        "bake t5 alignment.json --length 300 --out baked --json",
        "calibrate t5 --method @alignment.json --length 300 --train-length 64 --out new.json --json",
    ),
    "run/records.jsonl": (REPORT, EVALUATE, f"{EVALUATE} --length 300 --json"),
    "run/sharpness.jsonl": (REPORT, EVALUATE),
    "run/config.json": (REPORT, EVALUATE, f"{EVALUATE} --json"),
    "analysis/*.json": (REPORT.replace("run", "analysis"), REPORT.replace("run", "run analysis")),
    "analysis/*.jsonl": (f"{ANALYSE} --json",),
    "recommended/recipe.json": (
        REPORT.replace("run", "recommended"),
        "evaluate t5 --method @recommended/recipe.json --task passkey --length 300 --samples 1 --out new --json",
    ),
    "recommended/*/*.jsonl": (RECOMMEND, f"{RECOMMEND} --json"),
    "settings.yaml": ("train --config settings.yaml --json", "train llama --config settings.yaml --steps 1"),
    "trained/*.json": (TRAIN, f"{TRAIN} --json"),
    "trained/*.jsonl": (TRAIN, f"{TRAIN} --json"),
    "trained/checkpoints/checkpoint-2/*": (TRAIN, f"{TRAIN} --json"),
    "cases.jsonl": (CASES,),
    "prose.txt": (f"{CALIBRATE} --text prose.txt", f"{MISALIGNMENT} --text prose.txt", TRAIN),
    "longbench/*": (LONGBENCH,),
    "t5/*": OF_T5,
    "llama/*": (MISALIGNMENT, CASES),
    "sharded/*.index.json": (SHARDED,),
    "sharded/*-of-*.safetensors": (SHARDED,),
}


def damaged_file(folder: Path, random: Random) -> tuple[list[str], str, str]:
    """(words of a command, the file that was damaged for it, how)."""
    pattern = random.choice(list(READERS))
    file = random.choice(sorted(path for path in folder.glob(pattern) if path.is_file()))
    how = damage(file, random)
    return random.choice(READERS[pattern]).split(), str(file.relative_to(folder)), how
