"""The parts of the JSON report, one subject each."""
