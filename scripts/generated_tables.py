"""Tables of README.md and docs/ that are written from result files and from the methods' own files, never by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments._lib.markdown import marked, with_mark

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ROOT / "experiments"
NAMES = {
    "none": "as it is",
    "truncate": "last 512 tokens",
    "log": "log law",
    "pmax-model": "P_max aligned",
    "entropy-model": "entropy aligned",
    "hedge-pmax-model": "P_max, hedged",
}
ANSWERS = {"answers-head": "fitted to answers, by head"}
# How near a task is to what temperatures were fitted to, where it is near at all
FITTED = {
    "language": "prose is kept",
    "line": "yes",
    "passkey": "yes",
    "passkey-novels": "in other prose",
    "line-told": "in other words",
    "code_key_retrieval": "yes",
    "questions": "yes",
}
TASK_WORDS = {"passkey-novels": "passkey in novels", "passkey": "passkey in our prose", "line-told": "line, told as a document"}


def retrieval() -> str:
    """Percent right of the embedded model by task and length."""
    cells = _read("retrieval/results/embedded.json")["cells"]
    methods = ["none", "truncate", "log", "pmax-model", "entropy-model"]
    tasks = {"passkey-novels": "a number in a novel", "line": "a line of a record", "topic": "the first topic"}
    rows = [
        [words, f"{length:,}", *(_percent(_cell(cells, task=task, length=length, method=method)) for method in methods)]
        for task, words in tasks.items()
        for length in (512, 4096, 15000)
    ]
    return _table(["asked for", "tokens", *(NAMES[method] for method in methods)], rows, left=1)


def flan() -> str:
    """Percent right of flan_t5_small: pass keys and lines by length, questions over all places of the answer."""
    tasks = {"passkey-novels": "a number in a novel", "line-told": "a line, told as a document"}
    names = {**NAMES, **ANSWERS}
    return _asked_for(_found_and_answered("flan_t5_small", tasks, names), names)


def scopes() -> str:
    """flan_t5_small with one temperature for the model, one a layer or one a head: percent right, and perplexity."""
    names = {"none": "as it is"} | {
        f"{statistic}-{scope}": f"{written}, {words}"
        for statistic, written in (("pmax", "P_max"), ("entropy", "entropy"))
        for scope, words in (("model", "one"), ("layer", "by layer"), ("head", "by head"))
    }
    tasks = {
        "passkey-novels": "a number in a novel",
        "passkey": "a number in our prose",
        "line-told": "a line, told as a document",
    }
    rows = _found_and_answered("flan_t5_small-scopes", tasks, names, lengths=(1024, 2048, 4096), documents=(20, 30))
    cells = _read("language_modelling/results/flan_t5_small-scopes.json")["cells"]
    for length in (4096, 15000):
        told = [_cell(cells, length=length, method=method)["perplexity"] for method in names]
        rows.append(["perplexity of novels", f"{length:,}", *(f"{perplexity:.0f}" for perplexity in told)])
    return _asked_for(rows, names)


def tuned() -> str:
    """Percent right of the same model tuned for minutes: topics, lines and keys in code by length, questions."""
    tasks = {"topic": "the first topic", "line": "a line of a record", "line-told": "a line, told as a document"}
    return _asked_for(_found_and_answered("tuned_flan", tasks, NAMES, code=True), NAMES)


def _asked_for(rows: Sequence[Sequence[object]], names: Mapping[str, str]) -> str:
    return _table(["asked for", "tokens", *names.values()], rows, left=1)


def _found_and_answered(
    model: str,
    tasks: Mapping[str, str],
    names: Mapping[str, str],
    code: bool = False,
    lengths: Sequence[int] = (512, 2048, 4096, 8192, 15000),
    documents: Sequence[int] = (3, 10, 20, 30),
) -> list[list[object]]:
    """What is found by length, and what is answered over all places of the answer."""
    methods, rows = list(names), list[list[object]]()

    def add(cells: Sequence[dict[str, Any]], task: str, words: str, lengths: Sequence[int]) -> None:
        for length in lengths:
            found = [_percent(_cell(cells, task=task, length=length, method=method)) for method in methods]
            rows.append([words, f"{length:,}", *found])

    cells = _read(f"retrieval/results/{model}.json")["cells"]
    for task, words in tasks.items():
        add(cells, task, words, lengths)
    if code:
        add(_read(f"code/results/{model}.json")["cells"], "code_key_retrieval", "a key in code", (512, 4096, 16000))
    for words, file in (("made-up questions", "made_up"), ("Natural Questions", "natural_questions")):
        cells = _read(f"questions/results/{model}-{file}.json")["cells"]
        for number in documents:
            some = [cell for cell in cells if cell["task"].startswith(f"{number}-")]
            places = sorted({cell["task"] for cell in some})
            found = [_percent_of_means(some, places, method) for method in methods]
            rows.append([f"{words} over {number} documents", f"{some[0]['length']:,}", *found])
    return rows


def going_on() -> str:
    """Perplexity of continuations over truncation's, by method and length, for three T5s."""
    methods = ["none", "log", "pmax-model", "hedge-pmax-model"]
    rows = []
    for model in ("embedded", "flan_t5_small", "tuned_flan"):
        cells = _read(f"language_modelling/results/{model}.json")["cells"]
        for length in (2048, 8192, 15000):
            ratios = [_cell(cells, method=method, length=length) for method in methods]
            rows.append([f"`{model}`", f"{length:,}", *("-" if r is None else _with_interval(r["ratio"]) for r in ratios)])
    return _table(["model", "tokens", *(NAMES[method] for method in methods)], rows, left=1)


def scorecard() -> str:
    """How many figures hold the papers' claims, by whose models."""
    from experiments.scorecard.page import sentence

    return sentence()


def against_truncation() -> str:
    """What hedging gains over truncation in each task of the tuned T5, all lengths together."""
    whole = _whole_tasks("tuned_flan")
    rows = [[_task_words(task), with_mark(v["difference"], v), v["said"]] for task, v in whole.items()]
    table = _table(["task", "hedged less truncation [95 % interval]", "verdict"], rows, left=3)
    return "\n\n".join([table, *marked(whole.values())])


def answers_over() -> str:
    """What temperatures fitted to answers, alone or hedged, gain and lose in each task of flan_t5_small."""
    pairs = {
        "less plain": "answers-head-over-none",
        "less P_max": "answers-head-over-pmax-model",
        "less truncation": "answers-head-over-truncate",
        "hedged, less plain": "hedge-answers-head-over-none",
        "hedged, less truncation": "hedge-answers-head-over-truncate",
    }
    columns = [_whole_tasks(f"flan_t5_small-{pair}") for pair in pairs.values()]

    def shown(verdict: Mapping[str, Any]) -> str:
        told = str(verdict["difference"]).replace(" points", "").replace(" times its perplexity", " times")
        told = with_mark(told, verdict)
        return told if verdict["said"] == "level" else f"**{told}**"

    rows = [
        [
            _task_words(task),
            FITTED.get(task.split()[0], "no"),
            *(shown(column[task]) for column in columns),
        ]
        for task in columns[0]
    ]
    table = _table(["task, all lengths or places", "fitted?", *pairs], rows, left=2)
    return "\n\n".join([table, *marked(verdict for column in columns for verdict in column.values())])


def _whole_tasks(name: str) -> dict[str, dict[str, Any]]:
    """Verdicts on tasks at all their lengths, by task."""
    verdicts = _read(f"against_truncation/results/{name}.json")["verdicts"]
    return {verdict["task"]: verdict for verdict in verdicts if verdict["length"] is None}


def misalignment_loss() -> str:
    """Perplexity of a decoder fine-tuned with the misalignment loss, over that without it."""
    changes, rows = _read("misalignment_lora/results/changes.json")["changes"], []
    kind = itemgetter("corpus", "factor", "alpha", "compare")
    for corpus, factor, alpha, compare in dict.fromkeys(map(kind, changes)):
        own = [c for c in changes if kind(c) == (corpus, factor, alpha, compare)]
        told = {"sce": "", "kl": ", symmetric KL", "sce-1..L": ", readings up to L apart"}[compare]
        loss = f"alpha {alpha:g}{told}"
        rows.append([corpus, f"{factor} L", loss, *(f"{c['ratio']:.3f} [{c['low']:.3f}, {c['high']:.3f}]" for c in own)])
    return _table(["text", "trained at", "loss", *(f"at {n} L" for n in dict.fromkeys(c["at"] for c in changes))], rows, left=3)


# Methods for decoders, by what a row sees: nothing new, recent tokens, all of them
SEEING = {
    "": ("none",),
    "recent": ("truncate", "streaming_llm", "lm_infinite", "window"),
    "all": (
        *("rerope:window={half}", "rerope:window={half},leak={leak}", "self_extend:group={group},window={quarter}"),
        *("dual_chunk", "yarn:factor={factor}", "yarn:factor=4", "ntk:factor={factor}", "interpolation:factor={factor}"),
    ),
}


def decoders_going_on() -> str:
    """Rotary models past their training length: perplexity over `streaming_llm`'s."""
    from experiments.decoders.page import BASE, perplexity_ratio

    models = _decoders()
    places = {
        "stories15M, 4 x": ("stories15M", 1024),
        "SmolLM2, 2 x": ("smollm2_135m", 16384),
        "Qwen, 2 x": ("qwen_coder_05b", 65536),
        "Qwen 1.5B, 2 x": ("qwen_coder_15b", 65536),
        "Gemma, 2 x": ("gemma3_270m", 65536),
    }

    def cells(method: str) -> list[str]:
        ratios = [perplexity_ratio(models[name], method, BASE, length) for name, length in places.values()]
        return ["" if ratio is None else f"{ratio.ratio:.2f}" for ratio in ratios]

    return _by_method(list(places), cells)


def decoders_finding() -> str:
    """Rotary models at two and four times their training length: percent of pass keys found, and RULER's mean at two."""
    from experiments.decoders.page import ruler_means

    names = {"SmolLM2": "smollm2_135m", "Qwen": "qwen_coder_05b", "Qwen 1.5B": "qwen_coder_15b", "Gemma": "gemma3_270m"}
    models = {name: _decoders()[file] for name, file in names.items()}

    def found(document: Mapping[str, Any], method: str) -> str:
        lengths = [times * document["train_length"] for times in (2, 4)]
        asked = [_cell(document["answers"], method=method, task="passkey", length=length) for length in lengths]
        return " / ".join("..." if cell is None else _of_twenty(cell["scores"]) for cell in asked) if any(asked) else ""

    def cells(method: str) -> list[str]:
        ruler = [models[name] for name in ("SmolLM2", "Qwen")]
        means = [ruler_means(model, method, 2 * model["train_length"]) for model in ruler]
        told = [f"{100 * fmean(own):.0f}" if own else "" for own in means]
        return [*(found(model, method) for model in models.values()), *told]

    return _by_method([*models, "RULER, SmolLM2", "RULER, Qwen"], cells, sees=False)


def _of_twenty(scores: Sequence[float]) -> str:
    """Percent, and of how many where they are fewer."""
    return f"{100 * fmean(scores):.0f}" + (f" of {len(scores)}" if len(scores) < 20 else "")


def _decoders() -> dict[str, Any]:
    from experiments._lib.page import read_all
    from experiments.decoders import page

    return dict(page.together([document for _, document in read_all(EXPERIMENTS / "decoders/results", page.FORMAT)]))


def _by_method(head: Sequence[str], cells: Callable[[str], list[str]], sees: bool = True) -> str:
    """A row a method for decoders; those that were asked nowhere are left out."""
    from experiments._lib.rotary_methods import written

    told = {"none": "plain", "truncate": "the last W tokens"}
    asked = [(what, method, cells(method)) for what, methods in SEEING.items() for method in methods]
    names = {method: told.get(method, f"`{written(method)}`") for _, method, _ in asked}
    rows = [[names[method], *([what] if sees else []), *own] for what, method, own in asked if any(own)]
    return _table(["", *(["sees"] if sees else []), *head], rows, left=1 + sees)


def sharpness() -> str:
    """Mean P_max, entropy and largest logit of the embedded model by length."""
    lengths = _read("dispersion/results/embedded-analysis/analysis.json")["lengths"]
    rows = [
        [f"{at['length']:,}", f"{_mean(at['p_max']):.3f}", f"{_mean(at['entropy']):.2f}", f"{_mean(at['l_max']):.2f}"]
        for at in lengths
    ]
    return _table(["tokens", "P_max", "entropy, nats", "largest logit"], rows)


def temperatures() -> str:
    """Temperature of the embedded model by length, by five accounts."""
    by_length = _read("dispersion/results/embedded-analysis/analysis.json")["temperatures"]
    fields = {
        "proposition_1": "Proposition 1 (P_max)",
        "proposition_2": "Proposition 2 (entropy)",
        "pmax": "Algorithm 1 (P_max)",
        "entropy": "Algorithm 1 (entropy)",
        "log_law": "log law",
    }
    rows = [[f"{at['length']:,}", *(f"{at[field]:.3f}" for field in fields)] for at in by_length]
    return _table(["tokens", *fields.values()], rows)


def encoders() -> str:
    """Seconds and memory of a T5 encoder of XL's shape on a GPU."""
    records = [r for r in _benchmark("attention_gpu") if r["what"] == "encoder" and r["shape"] == "flan-t5-xl"]
    names = ["lengthwise", "transformers_eager", "transformers_sdpa"]
    rows = []
    for length in sorted({r["length"] for r in records}):
        found = [next((r for r in records if r["length"] == length and r["implementation"] == name), None) for name in names]
        rows.append([f"{length:,}", *(_seconds_and_memory(record) for record in found)])
    return _table(["tokens", "lengthwise", "transformers, eager", "transformers, sdpa"], rows)


def encoder_cpu() -> str:
    """Time and memory of a T5 encoder of t5-small's shape on a CPU."""
    records = _benchmark("attention_cpu")
    rows = []
    for r in records:
        sdpa = next(o for o in records if o["length"] == r["length"] and o["implementation"] == "transformers_sdpa")
        time, memory = (r[field] / sdpa[field] for field in ("cpu_seconds", "extra_gb"))
        times = [f"{r['seconds']:.2f}", f"{r['cpu_seconds']:.2f}", f"{time:.2f}"]
        rows.append([f"{r['length']:,}", r["implementation"], *times, f"{r['extra_gb']:.2f}", f"{memory:.3f}"])
    head = ["tokens", "implementation", "seconds", "cpu-seconds", "of sdpa's", "extra memory, GB", "of sdpa's"]
    return _table(head, rows)


def accelerate_cpu() -> str:
    """Processor time of T5's attention on a CPU, accelerated, beside sdpa."""
    rows = []
    for r in _benchmark("accelerate_cpu"):
        what = f"{r['dtype']}, {'training' if r['training'] else 'forward'}{', padded' if r['padded'] else ''}"
        rows.append(
            [what, f"{r['length']:,}", *(f"{r[way] * 1e3:,.0f}" for way in ("sdpa", "lengthwise")), f"{r['ratio']:.2f}"]
        )
    return _table(["", "tokens", "sdpa, ms", "accelerated, ms", "times as fast"], rows, left=1)


def prompts() -> str:
    """CPU seconds to make one prompt / to tokenise it, by task and tokenizer."""
    records = _benchmark("prompts")
    names = list(dict.fromkeys(r["tokenizer"] for r in records))
    by_place = {(r["task"], r["tokenizer"]): "{cpu_seconds:.2f} / {tokenised:.2f}".format(**r) for r in records}
    rows = [[f"`{task}`", *(by_place[task, name] for name in names)] for task in dict.fromkeys(r["task"] for r in records)]
    return _table(["task", *names], rows, left=1)


def decoding() -> str:
    """A token of generation by method, beside transformers' own attention."""
    records = _benchmark("decoding")["records"]
    rows = [
        [
            r["method"],
            f"{r['milliseconds']:.1f}",
            "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**r),
            f"{r['keys']:,}",
        ]
        for r in records
    ]
    return _table(["attention", "milliseconds a token", "times sdpa's", "keys kept"], rows, left=1)


def attention_gpu() -> str:
    """Attention, encoders, training steps and calibration on a GPU."""
    from benchmarks.gpu.page import page

    return page(_benchmark("attention_gpu"))


def workloads_gpu() -> str:
    """Milliseconds and gigabytes of what people run T5 on: the fastest stock way beside ours, compiled and not."""
    from benchmarks.gpu.workloads import WAYS

    records, rows = [r for r in _benchmark("workloads_gpu") if r["seconds"] is not None], []
    for workload in dict.fromkeys(r["workload"] for r in records):
        told = []
        for compiled in (False, True):
            ran = [r for r in records if r["workload"] == workload and (WAYS[r["implementation"]][1] is not None) == compiled]
            ways = [[r for r in ran if (WAYS[r["implementation"]][0] == "lengthwise") == ours] for ours in (False, True)]
            stock, own = (min(way, key=lambda r: r["seconds"], default=None) for way in ways)
            ratio = "-" if stock is None or own is None else f"{stock['seconds'] / own['seconds']:.2f}"
            told += [_milliseconds_and_memory(stock), _milliseconds_and_memory(own), ratio]
        rows.append([workload, *told])
    heads = ["stock", "accelerated", "times as fast", "stock, compiled", "accelerated, compiled", "times as fast"]
    return _table(["workload", *heads], rows, left=1)


def _milliseconds_and_memory(record: Any) -> str:
    if record is None:
        return "-"
    memory = "" if record["extra_gb"] is None else f", {record['extra_gb']:.2g} GB"
    milliseconds = record["seconds"] * 1e3
    return f"{milliseconds:,.0f}{memory}" if milliseconds >= 1000 else f"{milliseconds:.3g}{memory}"


def training() -> str:
    """Time of a training step with and without the misalignment loss."""
    rows = []
    for r in _benchmark("training"):
        plain, twice, loss = (r["seconds"][name] for name in ("plain", "two readings", "with the loss"))
        sizes = [f"{r['parameters'] / 1e6:.0f} M", r["shape"]["device"], r["shape"]["length"], 2 * r["shape"]["rows"]]
        rows.append([*sizes, f"{plain:.2f}", f"{twice:.2f}", f"{loss:.2f}", f"{loss / plain:.3f}", f"{loss / twice:.3f}"])
    seconds = ["plain", "two readings", "with the loss", "of plain", "of two readings"]
    return _table(["parameters", "on", "tokens a row", "2 B", *seconds], rows)


def peers() -> str:
    """Our logits beside those of the authors' own code."""
    rows = [
        [
            run["method"],
            f"[{run['repository']}](https://github.com/{run['repository']}) {run['commit']}",
            run["transformers"],
            run["model"],
            f"`{run['spec']}`",
            f"{run['largest_difference']:.1g}",
            f"{run['largest_difference_to_plain']:.2g}",
        ]
        for run in _benchmark("peers")["runs"]
    ]
    return _table(["method", "their code", "transformers", "model", "ours", "difference", "of the plain model"], rows, left=5)


def campaign() -> str:
    """Outcomes of the campaign of hostile commands and damaged files, by seed."""
    files = sorted((ROOT / "scripts/fuzz/results").glob("seed-*.json"), key=lambda file: int(file.stem.rpartition("-")[2]))
    documents = [json.loads(file.read_text()) for file in files]
    rows = [
        [document["seed"], kind, *outcomes.values(), sum(outcomes.values())]
        for document in documents
        for kind, outcomes in document["outcomes"].items()
    ]
    return _table(["seed", "", *documents[0]["outcomes"]["command lines"], "all"], rows, left=2)


def mutants() -> str:
    """Planted defects by what they were planted in, and what became of those that no test had caught."""
    before, now = _mutants("before"), _mutants("now")
    rows = []
    for target, then in before.items():
        missed, left = len(then["survivors"]), len(now[target]["survivors"])
        removed = missed - now[target]["planted"]
        rows.append(
            [target, then["possible"], then["planted"], then["planted"] - missed, missed - removed - left, removed, left]
        )
    head = ["planted in", "possible", "planted", "caught at once", "by a new test", "code rewritten or removed", "left"]
    return _table(head, rows, left=1)


def argued() -> str:
    """Planted defects that are left, and why none of them needs a test."""
    reasons, now = _mutants("argued"), _mutants("now")
    rows = [[f"`{name}`", reasons[name]] for found in now.values() for name in found["survivors"]]
    return _table(["left", "because"], rows, left=2)


def _mutants(name: str) -> Any:
    return json.loads((ROOT / f"scripts/mutants/{name}.json").read_text())


def methods() -> str:
    """Every method with what it does, its file, its paper and its authors' code, as its own file says."""
    from lengthwise.methods.registry import METHODS, source_of

    rows = []
    for name in METHODS:
        source = source_of(name)
        what = source.summary.partition(": ")[2].removesuffix(".")
        links = [paper_link(paper) for paper in source.papers] + [f"[code]({address})" for address in source.code]
        rows.append([f"[`{name}`](../src/{source.file})", what, ", ".join(links)])
    return _table(["method", "what it does", "from"], rows, left=3)


def methods_by_kind() -> str:
    """The names of all methods, each with its file and its papers, by the folder of their files."""
    from lengthwise.methods.registry import METHODS, source_of

    sources = {name: source_of(name) for name in METHODS}
    lines = []
    for kind in ("positions", "temperature", "similarity"):
        mine = {name: source for name, source in sources.items() if Path(source.file).parent.name == kind}
        told = [" ".join([f"[`{name}`](src/{of.file})", *map(_year_link, of.papers)]) for name, of in mine.items()]
        lines.append(f"- **{kind}**: {', '.join(told)}")
    return "\n".join(lines)


def _year_link(paper: str) -> str:
    return re.sub(r"\[.*?(\d{4}).*?\]", r"[\1]", paper_link(paper))


def paper_link(paper: str) -> str:
    """`Who year, arXiv:ID` or `Who year, ADDRESS` as a link."""
    who, _, where = paper.rpartition(", ")
    return f"[{who}]({where.replace('arXiv:', 'https://arxiv.org/abs/')})"


def _read(path: str) -> Any:
    return json.loads((EXPERIMENTS / path).read_text())


def _benchmark(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def _cell(cells: Sequence[dict[str, Any]], **fields: Any) -> dict[str, Any] | None:
    return next((cell for cell in cells if all(cell[name] == value for name, value in fields.items())), None)


def _percent(cell: dict[str, Any] | None) -> str:
    return "-" if cell is None else f"{100 * cell['mean']:.0f}"


def _percent_of_means(cells: Sequence[dict[str, Any]], tasks: Sequence[str], method: str) -> str:
    means = [cell["mean"] for cell in cells if cell["task"] in tasks and cell["method"] == method]
    return "-" if not means else f"{100 * sum(means) / len(means):.0f}"


def _with_interval(ratio: dict[str, float]) -> str:
    return f"{ratio['ratio']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"


def _task_words(task: str) -> str:
    task = TASK_WORDS.get(task, task)
    words = task.replace("questions-nq-open-oracle", "Natural Questions over").replace("questions", "made-up questions over")
    return words.replace("code_completion_es", "next line of code, edit similarity").replace("_", " ")


def _seconds_and_memory(record: dict[str, Any] | None) -> str:
    if record is None:
        return "not tried"
    return "out of memory" if record["seconds"] is None else f"{record['seconds']:.3g} s, {record['extra_gb']:.2g} GB"


def _mean(values: Any) -> float:
    flat = [number for row in values for number in row]
    return sum(flat) / len(flat)


def _table(head: Sequence[object], rows: Sequence[Sequence[object]], left: int = 0) -> str:
    rule = ["---" if at < left else "--:" for at in range(len(head))]
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in (head, rule, *rows))


TABLES: dict[str, Callable[[], str]] = {
    table.__name__: table
    for table in (
        *(retrieval, flan, scopes, tuned, going_on, against_truncation, answers_over, decoders_going_on, decoders_finding),
        *(misalignment_loss, scorecard),
        *(
            sharpness,
            temperatures,
            encoders,
            encoder_cpu,
            accelerate_cpu,
            prompts,
            decoding,
            attention_gpu,
            workloads_gpu,
            peers,
            training,
            campaign,
            mutants,
            argued,
            methods,
        ),
        methods_by_kind,
    )
}
