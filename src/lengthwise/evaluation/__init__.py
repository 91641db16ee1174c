"""What a model can still do at a length: `evaluate` scores it, `reach` finds its limit, `likelihood` its perplexity.

`sweep/` runs the cells of an evaluation; records are written by `lengthwise.records.RunDirectory`.
"""
