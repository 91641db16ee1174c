"""What several experiments need: one work shared out among processes, checkpoints, tables, specs with places, exit status."""
