"""Tunes a T5 that others trained, for minutes, on inputs of at most 512 tokens in many wordings."""
