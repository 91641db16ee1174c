"""The parts of an evaluation, in the order they are used.

`named_methods` (which methods) and `questions` (which samples) make the `jobs`: one a cell of method x task x length.
`in_process` or `on_ray` runs them; `cells` has one cell answered through `generate` and scored; `run_config` describes the run.
The records are written by `lengthwise.records.RunDirectory`.
"""
