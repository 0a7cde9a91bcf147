"""Floor 6: the command line. One thin file a verb: it reads options, calls one function, prints what comes back."""
