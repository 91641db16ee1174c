"""Attention on a GPU: speed and memory of the fused kernel beside what a user would use instead.

    python benchmarks/attention_gpu.py --seconds 130 --out benchmarks/results/attention_gpu.json
    python benchmarks/attention_gpu.py --page --out benchmarks/results/attention_gpu.json

attention and backward: 32 heads of 64 in bfloat16, with T5's bias and a temperature, against torch's flash and cuDNN without
either, SDPA with the bias as a matrix, FlexAttention with a table, and plain matrix products; dropout: backward with weights
dropped, at T5's rate. encoder: T5 encoders of random weights against transformers; training: forward and backward of them, with
dropout. calibration: `lengthwise.calibrate` of such an encoder. The points that have a target, set beforehand, come first; what
there is no time for is left out and named. The second line prints the tables of docs/benchmarks.md.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

START = time.monotonic()

if __name__ == "__main__":
    # So that it runs as a file as well as by python -m
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from benchmarks.gpu.command import main

    raise SystemExit(main(sys.argv[1:], START, __doc__))
