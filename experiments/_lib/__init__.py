"""What the experiments share: command line, result files, tables, figures, training of T5."""
