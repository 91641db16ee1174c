"""Methods that fill the temperature slot: g = 1/tau as a law of the number of visible keys, a calibrated table, or adaptive."""
