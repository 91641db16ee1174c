"""Which temperature a model needs at a length, how sharp its attention is, and weights that carry the answer."""
