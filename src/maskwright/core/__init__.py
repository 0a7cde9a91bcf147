"""Errors, specs, keyed randomness, files, and the value types passed between packages."""
