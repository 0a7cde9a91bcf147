"""`python -m maskwright` is the command `maskwright`; it too imports nothing from the current directory."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] == os.getcwd():
    del sys.path[0]

from maskwright.cli.main import main

if __name__ == "__main__":
    main()
