"""An analysis as a section of a page and as analysis.md: what it found in sentences, tables and figures."""

from __future__ import annotations

import shlex

from lengthwise.analysis import tables
from lengthwise.analysis.figures import figures
from lengthwise.analysis.records import Analysis, AtLength
from lengthwise.analysis.tables import ESTIMATES
from lengthwise.report import Section
from lengthwise.report.article import Article, Block
from lengthwise.report.charts import Figure
from lengthwise.report.formatting import listed

# Settings that `lengthwise analyse` takes as options of the same name
OPTIONS = ("sequences", "seed", "dtype", "train_length")
GROWS = 0.1  # of the largest logit at the training length, which may be below 0


def analysis_section(analysis: Analysis) -> Section:
    return analysis_article(analysis).section("attention by length")


def analysis_article(analysis: Analysis) -> Article:
    lengths = [f"{n.length:,}" for n in analysis.lengths]
    span = f"from {lengths[0]} to {lengths[-1]} tokens" if len(lengths) > 1 else f"at {lengths[0]} tokens"
    return Article(
        model=str(analysis.model["name"]),
        question="How does {} attend at length?",
        title=f"Attention of {{}} by length, trained on {analysis.train_length:,} tokens",
        lead=f"Trained on {analysis.train_length:,} tokens, read {span}, without a method.",
        findings=tuple(findings(analysis)),
        no_findings="This analysis has not come beyond the training length yet.",
        note="Layers and heads are counted from 1.",
        blocks=_blocks(analysis),
        facts=tuple(facts(analysis)),
        command=command(analysis),
    )


def _blocks(analysis: Analysis) -> tuple[Block, ...]:
    drawn = figures(analysis)
    sharpness, heads, qq = ((figure,) for figure in drawn[:3])
    return (
        Block(
            "How sharp attention is",
            "P_max is how much of its attention a row gives to its strongest key, the entropy how widely it spreads; means "
            "over layers, heads and rows of the plain model.",
            tables.by_length(analysis),
            figures=sharpness,
        ),
        Block(
            "Which heads disperse most",
            "By how much the P_max of a head falls from the training length to the longest.",
            tables.dispersing(analysis),
            figures=heads,
        ),
        Block(
            "The temperature, derived and measured",
            "What tau must be for attention to stay as sharp as at training length: derived from the first layer's logits "
            "(Proposition 1 keeps P_max, Proposition 2 the entropy), measured on the whole model (Algorithm 1), and by the log "
            "law, which knows the length alone.",
            tables.temperatures(analysis),
            notes=tuple(tables.notes(analysis)),
            figures=tuple(figure for figure in drawn if figure.name == "temperatures"),
            absent="" if analysis.temperatures else "Left out: the training length has not been measured yet.",
        ),
        *([_answers_block(analysis, drawn)] if analysis.answers else []),
        Block(
            "Logits of the first layer",
            "The logits of every row of the first layer, sorted, then averaged over rows and heads: what the propositions are "
            "derived from. They assume that these are Gaussian (QQ r near 1) and that the largest does not change with the "
            "length.",
            tables.first_layer(analysis),
            figures=qq,
        ),
        Block(
            "Learned bias",
            "Sight is the mean distance in tokens that a row would look at by its learned bias alone (softmax of the bias over "
            "the keys it sees). Near-sighted heads come first.",
            tables.sights(analysis),
            figures=tuple(figure for figure in drawn if figure.name.startswith("bias")),
            absent=""
            if analysis.sights
            else "This model has no learned bias over distances: its positions are rotations, absolute, or none.",
        ),
    )


def _answers_block(analysis: Analysis, drawn: list[Figure]) -> Block:
    return Block(
        "What the answers want",
        "By how many nats a right answer gets worse as all heads are sharpened, per unit of ln g, at g = 1, with its 95 % "
        "interval over the questions: below 0 sharper attention (tau below 1) helps, above 0 flatter. Not known: the model "
        "cannot do the task at its training length, and which way it leans tells nothing. Heads agree: the slope over the sum "
        "of all heads' slopes by size, 1 where every head wants the same and one temperature can serve them.",
        tables.answers(analysis),
        figures=tuple(figure for figure in drawn if figure.name == "answers"),
    )


def findings(analysis: Analysis) -> list[str]:
    """What was found, a sentence each; none while the analysis has not got beyond the training length."""
    trained, longest = analysis.trained, analysis.lengths[-1]
    if trained is None or longest.length <= trained.length:
        return []
    sentences = [_sharpness(trained, longest), _heads(analysis), _temperatures(analysis), *_answers(analysis)]
    sentences.append(_logits(trained, longest))
    return [*sentences, _sights(analysis)] if analysis.sights else [*sentences, *_largest(trained, longest)]


def _sharpness(trained: AtLength, longest: AtLength) -> str:
    (p0, h0), (p1, h1) = ((n.mean("p_max"), n.mean("entropy")) for n in (trained, longest))
    span = f"{trained.length:,} to {longest.length:,} tokens"
    if p1 >= p0:
        return f"Attention does not disperse: from {span} the mean P_max goes from {p0:.3f} to {p1:.3f}."
    return (
        f"Attention disperses: from {span} the mean P_max falls from {p0:.3f} to {p1:.3f}, and the mean "
        f"entropy goes from {h0:.2f} to {h1:.2f} nats."
    )


def _heads(analysis: Analysis) -> str:
    first = analysis.heads[0]
    falls = [head.fall for head in analysis.heads if head.fall > 0]
    if not falls:
        return "No head disperses: P_max falls in none of them."
    many = next(k for k in range(1, len(falls) + 1) if 2 * sum(falls[:k]) >= sum(falls))
    return (
        f"Head {first.head} of layer {first.layer} disperses most, P_max from {first.p_max_train:.3f} to "
        f"{first.p_max_longest:.3f}; {many} of {len(analysis.heads)} heads account for half of all that is lost."
    )


def _temperatures(analysis: Analysis) -> str:
    last = analysis.temperatures[-1]
    taus = {title: getattr(last, name) for name, title in ESTIMATES.items()} | {"the log law": last.log_law}
    known = [f"{name} {tau:.3f}" for name, tau in taus.items() if tau is not None]
    missing = [name for name, tau in taus.items() if tau is None]
    without = f"; {listed(missing)} {'has' if len(missing) == 1 else 'have'} none" if missing else ""
    return f"Temperature at {last.length:,} tokens: {listed(known)}{without}."


def _answers(analysis: Analysis) -> list[str]:
    """Whether sharper or flatter attention helps each task at the longest length, and whether keeping P_max opposes that."""
    last, sentences = analysis.temperatures[-1], []
    for a in (a for a in analysis.answers if a.length == last.length and analysis.can_do(a.task)):
        slope = f"{a.task} at {a.length:,} tokens: slope {a.slope:+.3g} nats per unit of ln g [{a.low:+.3g}, {a.high:+.3g}]"
        ways = {"sharper": "sharpening helps", "flatter": "flattening helps", "unclear": "the questions do not tell which way"}
        tau = 1.0 if last.pmax is None else last.pmax
        keeps = {"flatter": "sharpen" if tau < 1 else "", "sharper": "flatten" if tau > 1 else ""}.get(a.wants, "")
        warning = f". Keeping P_max (tau {tau:.3f}) would {keeps} it: the answers want it {a.wants}" if keeps else ""
        sentences.append(f"Answers to {slope}: {ways.get(a.wants, 'nothing is left to gain')}{warning}.")
    return sentences


def _logits(trained: AtLength, longest: AtLength) -> str:
    straight = [f"{n.qq_r:.3f}" for n in (trained, longest) if n.qq_r is not None]
    qq = f"their QQ correlation is {' and '.join(straight)}" if straight else "they are all equal"
    return (
        f"The propositions assume Gaussian logits in the first layer ({qq}) whose largest entry does not grow (it goes from "
        f"{trained.top:.2f} to {longest.top:.2f}); their sigma goes from {trained.sigma:.2f} to {longest.sigma:.2f}."
    )


def _largest(trained: AtLength, longest: AtLength) -> list[str]:
    before, after = (at.mean("l_max") for at in (trained, longest))
    grows = (
        f"The largest logit of a row grows from {before:.2f} to {after:.2f}: positions may be out of range, so that a position"
    )
    return [f"{grows} method (`yarn`, `rerope`) comes before a temperature."] if after - before > GROWS * abs(before) else []


def _sights(analysis: Analysis) -> str:
    near, far = analysis.sights[0], analysis.sights[-1]
    n0, n1 = analysis.train_length, analysis.lengths[-1].length
    return (
        f"By their bias alone heads would look {near.sight_train:.0f} (head {near.head}) to {far.sight_train:.0f} tokens away "
        f"(head {far.head}) at {n0:,} tokens, and {near.sight_longest:.0f} to {far.sight_longest:.0f} at {n1:,}."
    )


def facts(analysis: Analysis) -> list[tuple[str, str]]:
    """How the numbers were obtained: name and value, for reading."""
    weights = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in analysis.model.items() if key != "name")
    return [
        ("model", str(analysis.model["name"])),
        ("fingerprint", weights),
        *((key.replace("_", " "), str(value)) for key, value in analysis.settings.items()),
        ("lengths (sequences)", ", ".join(f"{n.length:,} ({n.sequences})" for n in analysis.lengths)),
        ("made with", ", ".join(f"{key} {value}" for key, value in analysis.made_with.items())),
    ]


def command(analysis: Analysis) -> str:
    """The command that obtains the numbers again."""
    words = ["lengthwise", "analyse", str(analysis.model["name"])]
    words += [word for n in analysis.lengths for word in ("--length", str(n.length))]
    words += [word for key in OPTIONS for word in (f"--{key.replace('_', '-')}", str(analysis.settings[key]))]
    words += [word for task in dict.fromkeys(answers.task for answers in analysis.answers) for word in ("--task", task)]
    words += [word for text in _texts(analysis) for word in ("--text", text)]
    return shlex.join([*words, "--out", "DIR"])


def _texts(analysis: Analysis) -> list[str]:
    """The files that were read; FILE for a text given in Python. Analyses of earlier versions tell names only."""
    if analysis.files:
        return analysis.files
    names = str(analysis.settings["text"])
    return {"shipped prose": [], "given text": ["FILE"]}.get(names, names.split(", "))
