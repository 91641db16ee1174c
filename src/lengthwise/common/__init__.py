"""What every other package uses: text as tokens, files written whole, progress, and formulae in plain numbers."""
