"""Values for the options of the commands: good ones, and such as users and attackers come up with."""

from __future__ import annotations

# How often each is drawn: `demo` takes minutes, `harness` and `analyse` seconds, lists have no options
WEIGHTS = {"analyse": 0.4, "demo": 0.1, "harness": 0.1, "methods": 0.4, "tasks": 0.2, "longbench": 0.6}
GOOD: dict[str, list[str]] = {
    "model": ["t5", "t5", "llama", "llama", "sharded"],
    "length": ["64", "280", "300"],
    "train_length": ["32", "64", "256"],
    "longest": ["300", "330"],
    "samples": ["1", "2"],
    "sequences": ["1", "2"],
    "pairs": ["1", "2"],
    "steps": ["1", "2"],
    "save_every": ["1", "2"],
    "batch": ["1", "2"],
    "accumulation": ["1", "2"],
    "batch_tokens": ["600", "1"],
    "seed": ["0", "7"],
    "threshold": ["0.5", "1"],
    "out": ["new", "new", "new/below", "new.json", "folder"],
    "text": ["prose.txt"],
    "data": ["cases.jsonl"],
    "dataset": ["cases.jsonl"],
    "text_field": ["prompt"],
    "alignment": ["alignment.json"],
    "config": ["settings.yaml"],
    "run_dirs": ["run", "analysis"],
    "folder": ["longbench"],
    "statistic": ["pmax", "entropy"],
    "scope": ["model", "layer", "head"],
    "search": ["solve", "grid", "dpe", "longrope"],
    "minutes": ["0.01", "0.05"],
    "dtype": ["auto", "float32", "bfloat16"],
    "device": ["cpu"],
    "adjustment": ["none", "clex", "eabf", "yarn:factor=4", "longqlora"],
    "sampling": ["1..L/2", "1..L"],
    "overlap": ["whole", "half"],
    "compare": ["sce", "kl"],
    "lora_rank": ["0", "2"],
    "alpha": ["0", "0.1"],
    "learning_rate": ["1e-4"],
    "warmup": ["0", "1"],
    "stretch": ["2", "4"],
    "split": ["train"],
    "to": ["transformers", "gguf", "onnx", "ctranslate2"],
    # An address makes Ray look for others
    "ray": ["nowhere", ""],
}
# Of the user's own, in material.py; those after the first are no methods or tasks, or fail
MY_METHODS = [f"mine.py:{name}" for name in ("Law", "Law:factor=2", "Empty", "Raises", "Fails", "Shapeless")]
MY_TASKS = [f"mine.py:{name}" for name in ("ASKED", "Law", "FAILS", "NOTHING")]
# Where a command wants another than most
GOOD_FOR: dict[tuple[str, str], list[str]] = {
    ("train", "model"): ["llama", "sharded"],
    ("misalignment", "model"): ["llama", "sharded"],
    ("misalignment", "length"): ["64", "256"],
    ("bake", "length"): ["300"],
    ("bake", "model"): ["t5"],
    ("bake", "out"): ["new", "folder"],
    ("export", "out"): ["new", "folder"],
    ("export", "spec"): ["log", "constant:tau=0.8", "yarn:factor=2", "ntk:factor=4+@alignment.json", "rerope"],
    ("evaluate", "length"): ["280", "300"],
    ("evaluate", "out"): ["new", "run"],
    ("analyse", "out"): ["new", "analysis"],
    ("train", "out"): ["new", "trained"],
    ("train", "data"): ["prose.txt"],
    ("train", "dtype"): ["float32", "bfloat16"],
    ("report", "out"): ["page.html", "new/page.html", "null"],
    ("calibrate", "out"): ["new.json", "alignment.json", "link.json", "private.json", "null", "pipe"],
}
# Their defaults take minutes
ALWAYS = {"samples", "longest", "pairs", "steps", "minutes"}
NUMBERS = [
    *"0 -1 1 3 2.5 1e400 nan inf -inf 99999999999999999999 0x10 1_0 ١٢ 1e-320 -0 4294967296 100000".split(),
    "9" * 5000,
    "",
    " ",
]
TEXTS = [
    *"- -- 日本 NaN [bold] {0}%s a,b=c".split(),
    "",
    " ",
    "a\nb",
    "\x1b[2Jred",
    "caf\udce9",
    "\u202eabc",
    "x" * 300,
    "x" * 5000,
]
PLACES = """
    missing missing/below folder pipe null full loop dangling empty.json t5 t5/config.json run . prose.txt/below
    private.json longbench alignment.json settings.yaml hub:no/such embeded a/b
""".split()
PLACES.append("x" * 256 + ".json")
SPECS = """
    none truncate hedge hedge+log hedge+hedge @alignment.json @missing @folder @pipe @prose.txt @ + none+ log+log yarn:
    yarn:factor yarn:factor=1,factor=2 yran:factor=4 yarn+infoscale yarn:factor=4+@alignment.json :a=1 prose.txt:Law
    missing.py:Law ./a+b.py:Law:x=1+log mine.py mine.py:Missing mine.py:Law:factr=2 mine.py:Law:factor=x mine.py:Empty
    mine.py:Raises mine.py:Shapeless mine.py:Law+mine.py:Law mine.py:Empty+log mine.py:ASKED broken.py:Law
    dpe:scales=scales.json longrope:factors=alignment.json @alignment.json:scope=head none+none aligned yarn;factor=4
    @t5/config.json @hub: @hub:no @hub:a/b/c.py
""".split()
