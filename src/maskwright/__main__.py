"""`python -m maskwright` is the command `maskwright`."""

from maskwright.cli.main import main

if __name__ == "__main__":
    main()
