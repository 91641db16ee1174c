"""Sections of run directories: how far each method reaches, score by task and length, and how it was obtained."""
