"""The parts of the terminal's report, one subject each."""
