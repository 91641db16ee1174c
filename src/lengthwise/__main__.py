"""`python -m lengthwise`, and `accelerate launch -m lengthwise train ...`."""

from lengthwise.cli import main

if __name__ == "__main__":
    main()
