"""`python -m lengthwise.cli`, where the script is not on the path."""

from lengthwise.cli import main

main()
