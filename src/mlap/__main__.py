"""`python -m mlap` is the command `mlap`."""

from mlap.cli import main

main()
