"""Run the command line with `python -m tbdprof`."""

from tbdprof.cli.main import main

main()
