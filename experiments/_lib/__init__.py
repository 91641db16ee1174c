"""What the experiments share: command line, result files, tables, figures, work shared among processes, training of T5."""
