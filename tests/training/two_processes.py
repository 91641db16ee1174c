"""`lengthwise train` as two processes; run by tests/test_train.py.

    python -m tests.training.two_processes FOLDER MODEL TEXT

The second process is a fork of the first, because each start of torch costs seconds; they are told of each other as
`accelerate launch` tells the processes it starts.
"""

from __future__ import annotations

import os
import sys

import torch

from lengthwise.cli import run
from tests.training.output_alignment.training import free_port


def main() -> None:
    torch.set_num_threads(1)
    folder, model, text = sys.argv[1:]
    os.environ |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    child = os.fork()
    rank = "0" if child else "1"
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank}
    command = f"train {model} --data {text} --out {folder}/run --adjustment clex --lora-rank 4 --batch 1 --save-every 2"
    command += " --train-length 64 --steps 5 --warmup 1 --learning-rate 0.01 --device cpu"
    status = run(command.split())
    if not child:
        # A fork has not the threads it was forked from, and to end in order would wait for them now and then
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
