"""Paper 003: entropy invariance, InfoScale and CosScale, on GAU-alpha trained at length 64."""
