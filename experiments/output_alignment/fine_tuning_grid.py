"""The runs, the most important first, and the steps after which each is measured.

A run is named by what it is trained with. Runs of one seed see the same rows in the same order with the same e, so that what
alpha does can be told on the same text; `factor` is the length trained at in the model's own training lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lengthwise.training.output_alignment.fused import KL, SCE

ALPHAS = (0.0, 0.1, 0.3, 0.5, 1.0)  # Table 4
KL_ALPHAS = (0.0, 0.1, 1.0, 10.0)  # of the symmetric KL, a far smaller number than L_SCE
MODERATE = (0.1, 0.3)  # what the paper advises
SAMPLING = "1..L/2"
RANGES = (SAMPLING, "1..L/4", "L/4..L/2", "1..L")  # Table 5
LENGTHS = (1, 2, 4, 8)  # at which perplexity is measured, in the model's own training lengths
STAGES = (
    "Tables 2, 4, 6, 7 and 9: clex and eabf at the model's own length",
    "Tables 3 and 10: longqlora, eabf and clex at twice the length",
    "Table 11: none at twice the length",
    "Table 5: ranges of e, longqlora at twice the length",
    "Table 4 with longqlora and none at the model's own length",
    "what is not in the paper: clex and eabf at the model's own length, compared by the symmetric KL",
)


@dataclass(frozen=True)
class Setting:
    """Runs that differ in alpha and seed only."""

    adjustment: str
    factor: int
    sampling: str = SAMPLING
    compare: str = SCE  # what readings are compared by; the paper has L_SCE

    @property
    def label(self) -> str:
        drawn = "" if self.sampling == SAMPLING else f", e from {self.sampling}"
        return f"{self.adjustment} at {self.factor} x{drawn}" + ("" if self.compare == SCE else ", by KL")

    @property
    def alphas(self) -> tuple[float, ...]:
        return ALPHAS if self.compare == SCE else KL_ALPHAS

    @property
    def without(self) -> Setting:
        """The setting whose runs with alpha 0 serve this one: they compare nothing."""
        return replace(self, compare=SCE)


@dataclass(frozen=True)
class Run:
    setting: Setting
    alpha: float
    seed: int

    @property
    def name(self) -> str:
        """A folder's as well."""
        one = self.setting
        compared = "" if one.compare == SCE else f"-{one.compare}"
        return f"{one.adjustment}-{one.factor}x-{one.sampling.replace('/', '_')}{compared}-alpha{self.alpha:g}-seed{self.seed}"

    @property
    def answers(self) -> bool:
        """Whether it is asked BABILong's questions, as those of Tables 6 and 7 are."""
        return self.setting == Setting("clex", 1) and self.alpha in (0.0, 0.1)


def stages(seeds: int) -> list[list[Run]]:
    """One list a stage; of each, first what the answer hangs on."""
    wanted = [
        [(Setting(name, 1), alpha) for alpha in ALPHAS for name in ("clex", "eabf")],
        [(Setting(name, 2), alpha) for alpha in ALPHAS[:-1] for name in ("longqlora", "eabf", "clex")],
        [(Setting("none", 2), alpha) for alpha in ALPHAS[:3]],
        [(Setting("longqlora", 2, sampling), MODERATE[0]) for sampling in RANGES[1:]],
        [(Setting(name, 1), alpha) for alpha in ALPHAS for name in ("longqlora", "none")],
        [(Setting(name, 1, compare=KL), alpha) for alpha in KL_ALPHAS[1:] for name in ("clex", "eabf")],
    ]
    return [[Run(setting, alpha, seed) for setting, alpha in stage for seed in range(seeds)] for stage in wanted]


def marks(steps: int) -> tuple[int, int, int]:
    """What 50, 100 and 200 steps are of the paper's 200."""
    return steps // 4, steps // 2, steps


def cheaper(mark: int) -> int:
    """Steps with the misalignment loss for the cost of `mark` without: the paper's 47, 95 and 190."""
    return max(1, mark * 95 // 100)


def measured_at(run: Run, steps: int) -> tuple[int, ...]:
    """Before the first step all alphas are the same."""
    own = marks(steps)
    return (0, *own) if run.alpha == 0 else tuple(sorted({*own, *map(cheaper, own)}))
