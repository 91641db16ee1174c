"""Why a model fails at length: what `lengthwise.analyse` measures, one idea a file. Needs no labels and no task."""
