"""An analysis as figures, tables and words, made from analysis.json alone."""
