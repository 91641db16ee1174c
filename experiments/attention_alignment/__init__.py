"""Paper 000 (attention alignment, T5) on any T5: retrieval (Tables 4 and 9) and dispersion (Table 1)."""
