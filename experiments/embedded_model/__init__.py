"""Trains the T5 that ships with the package: inputs of at most 512 tokens, retrieval and prefix language modelling."""
