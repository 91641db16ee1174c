"""The parts of an evaluation: what is run (contenders, cells), how a model answers, and who runs the cells (here, or Ray)."""
