"""A campaign of hostile commands and damaged files against the command line: `make fuzz`, docs/reliability.md."""
