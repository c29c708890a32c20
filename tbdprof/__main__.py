"""Run the command line with `python -m tbdprof`."""

from tbdprof.cli import main

main()
