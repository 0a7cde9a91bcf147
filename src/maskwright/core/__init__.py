"""Floor 0: what every room stands on. Errors, specs, keyed randomness, files, and the values that travel."""
