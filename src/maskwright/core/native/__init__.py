"""C code that is compiled on the machine where it is used."""
