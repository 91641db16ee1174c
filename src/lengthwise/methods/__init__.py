"""Length methods, one a file. Each is a frozen dataclass that fills one or more slots of the equation."""
