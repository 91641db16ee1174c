"""Attention alignment (Chi et al.) on any T5: every table and figure, the paper's number beside ours."""
