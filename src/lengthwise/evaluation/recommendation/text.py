"""A text of the user's instead of questions: how well is it told what follows at places with the whole length before them?

The first half of the text is for calibrations and the race, the second half confirms. Truncation reads as many tokens before
a place as the model was trained on, so it is the plain model at the training length. Readings stand in `likelihoods.jsonl`.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor

from lengthwise.calibration.answer_cases import FAR
from lengthwise.common.formats import Declared
from lengthwise.common.progress import ProgressCallback, progress
from lengthwise.errors import BadInput, require
from lengthwise.evaluation.likelihood import continuation_nll
from lengthwise.evaluation.recommendation.exam import CONFIRM, FRESH, RACE, ROUNDS, Exam
from lengthwise.evaluation.recommendation.measure import Measure, TextLikelihood
from lengthwise.evaluation.sweep.run_config import config_values, dtype_of, parameters_digest
from lengthwise.methods.recipe import Part
from lengthwise.methods.spec import NONE, TRUNCATE
from lengthwise.models.anatomy import has_encoder
from lengthwise.records.append_only import AppendOnly
from lengthwise.tasks.language_modelling import Frame, frame_of, framed, passages_of

TEXT = "text"
CONTINUATION = 64  # tokens that are told at a place, at most
FEWEST = FRESH[0]  # places to choose by, and to confirm
AT_ONCE = ROUNDS[0]  # places that are read between two looks at the clock


@dataclass(frozen=True)
class Reading(Declared):
    """How well one method predicted the tokens after one place of a text."""

    of: str  # digest of the model, the text, the method and how it is read
    method: str
    length: int
    index: int  # of the place
    nats: float | None  # a token of what follows; None where the model gives no finite number
    seconds: float
    task: ClassVar[str] = TEXT

    @property
    def score(self) -> float:
        return -math.inf if self.nats is None else -self.nats

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.of, self.method, self.length, self.index


@dataclass(frozen=True)
class TextExam(Exam):
    """An exam of places in a text: how well is it predicted what follows there?"""

    text: str

    @property
    def measure(self) -> Measure:
        return TextLikelihood(f"your text at {self.length:,} tokens")

    @property
    def usable_tasks(self) -> list[str]:
        return [TEXT]

    @property
    def tasks(self) -> dict[str, float | None]:
        return {TEXT: None}

    @property
    def options(self) -> Sequence[str]:
        return ["--text", "FILE"]

    def answers(
        self, run: str, methods: Mapping[str, Sequence[Part] | str], lengths: Sequence[int], samples: int
    ) -> Sequence[Reading]:
        trained = self.anatomy.train_length
        places = range(min(samples, len(self.places[run])))
        (self.folder / run).mkdir(parents=True, exist_ok=True)
        file = AppendOnly(self.folder / run / "likelihoods.jsonl", Reading)
        readings: list[Reading] = []
        with progress("reading", len(lengths) * len(methods), self.show_progress) as tick:
            for length in lengths:
                for name, parts in methods.items():
                    tick(0, f"text at {length:,} tokens, {name}")
                    asked = (NONE, NONE, trained) if name == TRUNCATE else (name, parts, length)
                    read = self._read(file, run, places, tick, *asked)
                    readings += [replace(reading, method=name, length=length) for reading in read]
                    tick(1)
        return readings

    def material(self, statistic: str, sequences: int | None) -> dict[str, Any]:
        most = min(sequences or 0, (self.first_half - self.length) // FAR) if statistic == "answers" else sequences
        return {"text": self.tokenizer.decode(self.tokens[: self.first_half], skip_special_tokens=True), "sequences": most}

    @cached_property
    def tokens(self) -> list[int]:
        return list(self.tokenizer(self.text, add_special_tokens=False, verbose=False).input_ids)

    @property
    def continuation(self) -> int:
        """How many tokens are predicted at a place; in a decoder they and their prefix share the training length."""
        return max(1, min(CONTINUATION, self.anatomy.train_length // 2))

    @cached_property
    def first_half(self) -> int:
        """How many tokens from the beginning are for calibrations and the race; the rest confirms."""
        needed = self.length + 2 * FEWEST * self.continuation
        there = f"the text has {len(self.tokens):,} tokens; at least {needed:,} are needed for {2 * FEWEST} places with"
        require(len(self.tokens) >= needed, f"{there} {self.length:,} before each; give a longer --text, or a smaller --length")
        return self.length + (len(self.tokens) - self.length) // 2

    @cached_property
    def places(self) -> dict[str, Tensor]:  # [places, length + continuation]
        """By run, places in the order in which they are read; no token is predicted at two of them."""
        halves = {RACE: self.tokens[: self.first_half], CONFIRM: self.tokens[self.first_half - self.length :]}
        most = {RACE: ROUNDS[-1], CONFIRM: FRESH[-1]}
        places = {}
        for run, tokens in halves.items():
            n = min(most[run], (len(tokens) - self.length) // self.continuation)
            order = random.Random(f"places {self.seed}").sample(range(n), n)
            places[run] = passages_of(tokens, self.length, self.continuation, n, self.seed)[order]
        return places

    @cached_property
    def frame(self) -> Frame:
        """Special tokens around a place: with T5's sentinel or without, whichever the plain model predicts better with."""
        encodes = has_encoder(self.model)
        frames = [frame_of(self.tokenizer, encodes, sentinel=False)]
        try:
            frames += [frame_of(self.tokenizer, encodes)] if encodes else []
        except BadInput:
            return frames[0]
        if len(frames) == 1:
            return frames[0]
        few = self.places[RACE][: ROUNDS[0]]
        nats = [self._nll(frame, few, self.anatomy.train_length, NONE).mean().nan_to_num(math.inf).item() for frame in frames]
        return frames[nats.index(min(nats))]

    def _nll(self, frame: Frame, places: Tensor, length: int, method: Any) -> Tensor:  # [places, continuation]
        read = framed(frame, places, length, self.continuation)
        trained = self.anatomy.train_length
        return continuation_nll(self.model, *read, skipped=len(frame.lead), method=method, train_length=trained)

    def _read(
        self,
        file: AppendOnly[Reading],
        run: str,
        places: Iterable[int],
        tick: ProgressCallback,
        name: str,
        parts: Sequence[Part] | str,
        length: int,
    ) -> list[Reading]:
        """The readings of one method at some places, a few at a time; those that were recorded before are not made again."""
        of = self._digest(run, parts)
        missing = [index for index in places if (of, name, length, index) not in file.lines]
        for first in range(0, len(missing), AT_ONCE):
            few = missing[first : first + AT_ONCE]
            start = time.perf_counter()
            nll = self._nll(self.frame, self.places[run][few], length, parts).mean(1).tolist()
            seconds = round((time.perf_counter() - start) / len(few), 4)
            nats = [value if math.isfinite(value) else None for value in nll]
            file.append(Reading(of, name, length, *told, seconds) for told in zip(few, nats, strict=True))
            tick(0)
        return [file.lines[of, name, length, index] for index in places]

    def _digest(self, run: str, parts: Sequence[Part] | str) -> str:
        listed = [] if isinstance(parts, str) else [part if isinstance(part, str) else part.file_content() for part in parts]
        read = [self._settings, run, json.dumps(listed, sort_keys=True)]
        return hashlib.sha256(repr(read).encode()).hexdigest()[:16]

    @cached_property
    def _settings(self) -> str:
        model = (parameters_digest(self.model), config_values(self.model), dtype_of(self.model), self.anatomy.train_length)
        return repr((model, self.tokens, self.length, self.seed))
