"""Length methods, one a file. Each is a frozen dataclass, or a module if it has weights, that fills slots of the equation."""
