"""Experiments: one folder a question. README.md is the index, `python -m experiments.pages` makes every page again."""
