"""What temperatures are fitted to: prompts whose answers we know, and places in a text.

Of an answer every token counts. Of a text's continuation those count that a far reader can know and a near one cannot: they
stand in the text before it, but not within the last training length. The others show what must not change (`kept`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div

from lengthwise.common.progress import ProgressCallback
from lengthwise.common.sequences import special_tokens
from lengthwise.errors import NoRoom, require
from lengthwise.models.anatomy import Anatomy, has_encoder
from lengthwise.models.patches import evaluating
from lengthwise.models.suitability import check_can_answer
from lengthwise.tasks import Sample, Task
from lengthwise.tasks.language_modelling import SENTINEL, frame_of, framed, passages
from lengthwise.tasks.making import make_samples, read_samples

DEFAULT_TASKS = ("passkey", "line", "multi_document_qa", "code_key_retrieval")
TEXT = "text"  # the name of its far words among tasks
GUARD = 3.0  # weight of a nat of KL on prose; one of an answer has 1
MOST_KEPT = 24  # places in prose
CHARACTERS = 8  # of a token, at most, in most texts
# Evaluations make samples with small seeds: what is fitted is never what is asked
FAR_SEEDS = 1_000_003
FAR, KEPT = 128, 32  # tokens of a continuation: to find some that depend on the far past; to hold the others


@dataclass(frozen=True)
class FitCase:
    """A prompt with its answer, or a place in a text with what follows: what is read, and which tokens should be predicted."""

    inputs: Tensor  # [1, tokens], read by the long stack
    targets: Tensor  # [1, tokens]
    counted: Tensor  # [tokens], which targets count
    kept: Tensor | None = None  # [counted, vocabulary], log-probabilities that should stay as they are

    def loss(self, model: nn.Module) -> Tensor:  # []
        """-ln p of the counted targets; or KL a token from the log-probabilities that should be `kept`."""
        logits = self.logits(model)
        if self.kept is None:
            return cross_entropy(logits, self.targets[0, self.counted].to(logits.device), reduction="sum")
        return kl_div(logits.log_softmax(-1), self.kept, log_target=True, reduction="sum") / len(logits)

    def logits(self, model: nn.Module) -> Tensor:  # [counted, vocabulary], float32
        device = next(model.parameters()).device
        inputs, targets = self.inputs.to(device), self.targets.to(device)
        if has_encoder(model):
            logits = model(input_ids=inputs, labels=targets, use_cache=False).logits
        else:
            ids = torch.cat([inputs, targets], 1)[:, :-1]
            logits = model(input_ids=ids, use_cache=False, logits_to_keep=targets.shape[1]).logits
        counted: Tensor = logits[0, self.counted.to(device)].float()
        return counted


@dataclass(frozen=True)
class CaseGroup:
    """Cases of one task, or of prose, and the weight of their losses; one in four is held out."""

    name: str
    weight: float
    cases: Sequence[FitCase]

    @property
    def held_out(self) -> Sequence[FitCase]:
        return self.cases[: max(1, len(self.cases) // 4)]

    @property
    def fitted(self) -> Sequence[FitCase]:
        return self.cases[len(self.held_out) :]


@dataclass(frozen=True)
class CaseMaker:
    """Makes the cases that one model is fitted to, at any length."""

    model: nn.Module
    tokenizer: Any
    anatomy: Anatomy
    tasks: dict[str, Task]  # none: far words of the text
    data: str | Path | None  # cases of the one task, where it makes none
    text: str
    samples: int  # of a task
    seed: int
    tick: ProgressCallback

    def training_nats(self) -> dict[str, tuple[float, float]]:
        """By task, nats of an answer and of one of its tokens at the training length; tasks without room there are left out."""
        check_can_answer(self.model)
        known, without_room = {}, None
        with evaluating(self.model), torch.no_grad():
            for name in self.tasks:
                self.tick(0, f"training length {self.anatomy.train_length:,}: {name}")
                try:
                    cases = self._answers(name, self.anatomy.train_length, 0, max(2, self.samples // 4))
                except NoRoom as error:
                    without_room = error
                    continue
                nats = sum(float(case.loss(self.model)) for case in cases)
                known[name] = nats / len(cases), nats / sum(int(case.counted.sum()) for case in cases)
        if without_room is not None and not known:
            raise without_room
        return known

    def task_groups(self, length: int, shorter: int, weights: dict[str, float]) -> list[CaseGroup]:
        """The cases of every task, or of the text's far words, at one length."""
        self.tick(0, f"length {length:,}: making cases")
        cases = {
            name: self._answers(name, length, shorter, self.samples)
            if name in self.tasks
            else self._places(length, self.samples, self.seed, far=True)
            for name in weights
        }
        return [CaseGroup(name, weight, cases[name]) for name, weight in weights.items()]

    def all_groups(self, length: int, shorter: int, weights: dict[str, float]) -> list[CaseGroup]:
        """`task_groups`, and prose whose predictions should stay as they are now."""
        asked = self.task_groups(length, shorter, weights)
        prose = self._places(length, min(self.samples, MOST_KEPT), FAR_SEEDS + self.seed, far=False)
        kept = []
        with evaluating(self.model), torch.no_grad():
            for case in prose:
                kept.append(replace(case, kept=case.logits(self.model).log_softmax(-1)))
                self.tick(0)
        return [*asked, CaseGroup("prose", GUARD, kept)]

    def _answers(self, name: str, length: int, shorter: int, n: int) -> list[FitCase]:
        task = self.tasks[name]
        if self.data is not None and task.take is None:
            return answer_cases(self.model, self.tokenizer, self._read(name, Path(self.data), length, shorter, n))
        room = length if has_encoder(self.model) else length - task.answer_tokens
        samples = make_samples(name, task, self.tokenizer, room, n, FAR_SEEDS + self.seed)
        return answer_cases(self.model, self.tokenizer, samples)

    def _read(self, name: str, data: Path, length: int, shorter: int, n: int) -> list[Sample]:
        """The file's cases that are longer than `shorter` and within the length; all where `shorter` is 0 and none fits."""
        every = read_samples(name, self.tasks[name], self.tokenizer, data)
        read = [sample for sample in every if shorter < sample.tokens <= length] or (every if shorter == 0 else [])
        problem = f"{data.name} has {len(read)} cases of {shorter + 1} to {length} tokens; at least 2 are needed"
        require(len(read) >= 2, f"{problem}, some to fit and others to ask")
        return random.Random(f"{data.name} {self.seed}").sample(read, min(n, len(read)))

    def _places(self, length: int, n: int, seed: int, far: bool) -> list[FitCase]:
        return text_cases(self.model, self.tokenizer, self.text, length, self.anatomy.train_length, n, seed, far)


def answer_cases(model: nn.Module, tokenizer: Any, samples: Sequence[Sample]) -> list[FitCase]:
    """The cases of a task's samples; a decoder's prompt and answer are tokenised as one text."""
    cases = []
    for sample in samples:
        prompt = tokenizer(sample.prompt, verbose=False).input_ids
        if has_encoder(model):
            answer = tokenizer(sample.target, verbose=False).input_ids
        else:
            both = tokenizer(f"{sample.prompt} {sample.target}", verbose=False).input_ids
            # An end-of-text token, and a first sign of the answer that melts into the prompt's last, stand in one of them only
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, both[:-1], strict=False)))
            prompt, answer = both[:same], both[same:]
        cases.append(FitCase(torch.tensor([prompt]), torch.tensor([answer]), torch.ones(len(answer), dtype=torch.bool)))
    return cases


def text_cases(
    model: nn.Module, tokenizer: Any, text: str, length: int, train_length: int, n: int, seed: int, far: bool
) -> list[FitCase]:
    """Cases at places in the text with `length` tokens before each; of what follows only far tokens count, or only the others.

    A text that is too short is repeated where nothing of it is asked for.
    """
    sentinel = tokenizer.convert_tokens_to_ids(SENTINEL) not in (None, tokenizer.unk_token_id)
    frame, tokens = frame_of(tokenizer, has_encoder(model), sentinel), FAR if far else KEPT
    if not far:
        wanted = length + n * tokens + sum(map(len, special_tokens(tokenizer)))
        text = text[: CHARACTERS * wanted]
        text *= -(-wanted // max(1, len(tokenizer(text, add_special_tokens=False, verbose=False).input_ids)))
    stretches = passages(tokenizer, text, frame.prefix_tokens(length, tokens), tokens, n, seed)
    cases = []
    for passage, inputs, targets in zip(stretches, *framed(frame, stretches, length, tokens), strict=True):
        counted = depends_on_the_far_past(passage[:-tokens], passage[-tokens:], train_length)
        counted = torch.cat([torch.zeros(len(targets) - tokens, dtype=torch.bool), counted if far else ~counted])
        if bool(counted.any()):
            cases.append(FitCase(inputs[None], targets[None], counted))
    problem = "no word of the text's continuations stands in the text before them, but not within the last"
    require(len(cases) > 1, f"{problem} {train_length} tokens; give a longer text, or a task")
    return cases


def depends_on_the_far_past(prefix: Tensor, continuation: Tensor, near: int) -> Tensor:  # [continuation]
    """Which tokens stand in the prefix, but neither in its last `near` tokens nor in the continuation before them."""
    recent = set(prefix[-near:].tolist())
    far = set(prefix.tolist()) - recent
    depends = []
    for token in continuation.tolist():
        depends.append(token in far)
        far.discard(token)
    return torch.tensor(depends)
