"""Write an extended model as one that stock engines run: a checkpoint of transformers, and what other engines make of it."""
