"""Paper 000 (attention alignment, T5) on any T5: every table and figure, the paper's number beside ours."""
