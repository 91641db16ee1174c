"""Lengths and shapes that are measured."""

from __future__ import annotations

from dataclasses import dataclass

LENGTHS = tuple(2**power for power in range(10, 17))
ENCODER_LENGTHS = (2048, 8192, 15_000, 32_768, 131_072)
DROPOUT_LENGTHS = (2048, 8192)
TRAINING_LENGTHS = (1024, 2048, 4096, 8192, 15_000)
CALIBRATION_LENGTHS = (15_000,)
LONGEST = 2**21  # tokens: a layer of more would take minutes


@dataclass(frozen=True)
class Shape:
    width: int
    heads: int
    inner: int  # of the gated feed-forward layer
    layers: int = 24
    key_size: int = 64
    words: int = 32128
    train_length: int = 512

    def operations(self, length: int, training: bool = False) -> float:
        """Operations of a forward: matrices of the layers, and two products of length x length a head; training 5 more."""
        of_layer = 4 * self.width * self.heads * self.key_size + 3 * self.width * self.inner
        matrices, products = (3.0, 3.5) if training else (1.0, 1.0)
        return self.layers * (matrices * 2.0 * of_layer * length + products * 4.0 * length**2 * self.heads * self.key_size)


SHAPES = {
    "flan-t5-large": Shape(1024, 16, 2816),
    "flan-t5-xl": Shape(2048, 32, 5120),
    "flan-t5-xxl": Shape(4096, 64, 10240),
}
