"""Output Alignment: what a model says of a sequence should not depend on how long the sequence is."""
