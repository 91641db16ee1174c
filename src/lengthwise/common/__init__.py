"""What every floor above needs: text as tokens, whole files, progress, and laws in plain numbers."""
