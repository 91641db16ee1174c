"""Entropy Invariance: InfoScale and CosScale on GAU-alpha trained at length 64."""
