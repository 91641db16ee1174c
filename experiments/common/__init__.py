"""What several experiments need: training a T5, one work shared out among processes, checkpoints, tables, exit status."""
