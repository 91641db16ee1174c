"""What a training run is made of: settings, adjustment, rows of tokens, its directory, and what watches it."""
