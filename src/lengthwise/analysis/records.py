"""What an analysis leaves behind: three files of append-only lines, and analysis.json, which holds all there is to know.

Layers and heads are counted from 0 in lists, and from 1 where a field or a table names one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from lengthwise.common.formats import Declared, Listed, MustBe, checked, read_format
from lengthwise.errors import BadInput, require
from lengthwise.records.record import Heads, Length

FORMAT = "lengthwise.analysis/1"
ANALYSIS, LENGTHS, ALIGNED, ANSWERS = "analysis.json", "lengths.jsonl", "aligned.jsonl", "answers.jsonl"
ENOUGH = 0.1  # nats of an answer: nothing is left to gain
KNOWN = 1.0  # nats a token of it, at the training length, above which a model cannot do a task
MAKE_ONE = "make one with `lengthwise analyse MODEL --length N ... --out DIR`"


def _tells_train_length(value: Any) -> bool:
    return isinstance(value, dict) and type(length := value.get("train_length")) is int and length > 1


def _tells_name(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str)


@dataclass(frozen=True)
class AtLength(Declared):
    """The measurements of one forward at one length."""

    length: Length  # tokens of a sequence
    sequences: int  # sequences it was averaged over
    p_max: Heads  # mean largest probability of a row
    entropy: Heads  # mean entropy of a row, in nats
    l_max: Heads  # mean largest logit of a row
    keys: int  # entries of the sorted, averaged logit vector of the first layer: keys its widest row sees
    logit_mean: float  # mean of that vector's entries
    sigma: float  # their standard deviation
    top: float  # its first entry, before the mean is taken off
    top_p: float  # softmax probability of its first entry
    qq_r: float | None  # correlation with the quantiles of a normal; None where all entries are equal
    ranks: list[int]  # which entries are kept here, 0 is the largest
    quantiles: list[float]  # of a normal, at those ranks
    logits: list[float]  # the entries at those ranks
    head_sigma: list[float]  # the same of every head's own sorted, averaged vector
    head_mean: list[float]
    head_qq_r: list[float | None]
    head_logits: list[list[float]]  # [heads][ranks]

    @property
    def key(self) -> int:
        return self.length

    def mean(self, statistic: str) -> float:
        """The mean of a statistic over layers and heads."""
        layers: Heads = getattr(self, statistic)
        return sum(map(sum, layers)) / sum(map(len, layers))


@dataclass(frozen=True)
class Aligned(Declared):
    """Algorithm 1's temperature at one length."""

    length: int
    statistic: str  # "pmax" or "entropy"
    tau: float | None  # one temperature for the model; None where none brings the statistic back
    why: str = ""  # why there is none

    @property
    def key(self) -> tuple[int, str]:
        return self.length, self.statistic


@dataclass(frozen=True)
class Temperatures(Declared):
    """Every account of the temperature at one length; None where an account has none, and `why` says so."""

    length: int
    proposition_1: float | None
    proposition_2: float | None
    pmax: float | None  # Algorithm 1, P_max kept
    entropy: float | None  # Algorithm 1, entropy kept
    log_law: float
    why: dict[str, str]  # account -> what is wrong with it here


@dataclass(frozen=True)
class Dispersal(Declared):
    """How far the attention of one head spreads from the training length to the longest."""

    layer: int  # from 1
    head: int  # from 1
    p_max_train: float
    p_max_longest: float
    entropy_train: float
    entropy_longest: float

    @property
    def fall(self) -> float:
        """The fall of P_max. Not the ratio, in which a head that never looked anywhere in particular would come first."""
        return self.p_max_train - self.p_max_longest


@dataclass(frozen=True)
class Sight(Declared):
    """The learned bias of one head, and how far it alone would make the head look."""

    layer: int  # from 1: the layer that owns the bias; T5's others share it
    head: int  # from 1
    sight_train: float  # mean |distance| in tokens under softmax of the bias, for a row of the training length
    sight_longest: float  # the same for a row of the longest length
    bias: list[float]  # at distances -radius ... radius, key minus query; constant beyond

    @property
    def radius(self) -> int:
        return (len(self.bias) - 1) // 2


@dataclass(frozen=True)
class AnswerSlopes(Declared):
    """How the right answers to one task at one length respond to sharpness, where nothing is changed yet."""

    length: int
    task: str
    cases: int
    nats: float  # -ln p of an answer, mean
    nats_a_token: float
    slope: float  # d nats / d ln g at g = 1, all heads together: below 0 sharper attention makes the answers likelier
    low: float  # its 95 % interval over the cases
    high: float
    heads: Heads  # the same of every head alone
    code: str = ""  # of a user's own task: its file or package, and a digest

    @property
    def key(self) -> tuple[int, str]:
        return self.length, self.task

    @property
    def agreement(self) -> float:
        """The size of the sum of all heads' slopes over the sum of their sizes: 1 where every head wants the same."""
        sizes = sum(abs(slope) for layer in self.heads for slope in layer)
        return abs(sum(map(sum, self.heads))) / sizes if sizes > 0 else 0.0

    @property
    def wants(self) -> str:
        """Whether sharper or flatter attention would make the answers likelier, if the interval excludes 0."""
        if self.nats < ENOUGH:
            return "nothing to gain"
        return "sharper" if self.high < 0 else "flatter" if self.low > 0 else "unclear"


@dataclass(frozen=True)
class Analysis(Declared):
    """All that analysis.json holds, beside its `format`; keys of later versions are passed over."""

    __pydantic_config__ = {**Declared.__pydantic_config__, "extra": "ignore"}

    model: Annotated[dict[str, Any], MustBe("the fingerprint of a named model", _tells_name)]
    settings: Annotated[dict[str, Any], MustBe("settings with a train_length above 1", _tells_train_length)]
    made_with: dict[str, str]
    lengths: Annotated[tuple[AtLength, ...], Listed]  # by length, the training length among them
    temperatures: Annotated[tuple[Temperatures, ...], Listed]  # from the training length on
    heads: Annotated[tuple[Dispersal, ...], Listed]  # those that disperse most first
    sights: Annotated[tuple[Sight, ...], Listed]  # near-sighted heads first; none where a model has no learned bias
    files: list[str] | None = None  # the texts that were read, as they were named; None in analyses of earlier versions
    answers: Annotated[tuple[AnswerSlopes, ...], Listed] = ()  # by length, where tasks were asked

    @property
    def train_length(self) -> int:
        return int(self.settings["train_length"])

    @cached_property
    def trained(self) -> AtLength | None:
        """The measurements at the training length; None while there are none."""
        return next((at for at in self.lengths if at.length == self.train_length), None)

    def can_do(self, task: str) -> bool:
        """Whether the model finds the right answers likely at its training length; true where the task has no room there."""
        return all(a.nats_a_token <= KNOWN for a in self.answers if a.key == (self.train_length, task))

    def to_json(self) -> dict[str, Any]:
        content = asdict(self)
        # Without tasks it is as earlier versions wrote it
        return {"format": FORMAT, **(content if self.answers else {key: content[key] for key in content if key != "answers"})}


def read_analysis(path: Path) -> Analysis:
    """The analysis of a directory, with at least one length in it."""
    document = read_document(path)
    try:
        analysis = checked(Analysis, document)
    except ValueError as error:
        raise BadInput(f"{path / ANALYSIS} is damaged: {error}; {MAKE_ONE}") from None
    require(len(analysis.lengths) > 0, f"{path} holds no finished length yet; let `lengthwise analyse ... --out {path}` run")
    compares = analysis.trained is not None and analysis.lengths[-1].length > analysis.train_length
    complete = len(analysis.heads) > 0 and len(analysis.temperatures) > 0
    require(complete or not compares, f"{path / ANALYSIS} is damaged: its 'heads' or 'temperatures' are gone; {MAKE_ONE}")
    return analysis


def read_document(path: Path) -> dict[str, Any]:
    """analysis.json of a directory as it stands there, its format checked."""
    document = read_format(path / ANALYSIS, FORMAT, "an analysis", MAKE_ONE)
    whole = all(isinstance(document.get(key), dict) for key in ("model", "settings"))
    require(whole, f"{path / ANALYSIS} is damaged: it does not tell of which model it is; {MAKE_ONE}")
    return document
