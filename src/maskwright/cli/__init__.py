"""Floor 6: the command line. One thin file a verb: options in, one call, results out."""
