"""Trains a larger T5, of 44 M parameters, for experiments: books, code, and question answering over short passages."""
