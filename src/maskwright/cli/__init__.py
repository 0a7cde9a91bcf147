"""The command line: one thin module per subcommand, which parses options, makes one call and prints the result."""
