"""Output Alignment: what a model says of a text and of the text's own suffix should be the same."""
