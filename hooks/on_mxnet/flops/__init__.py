"""FLOP counts of MXNet's operators, from their attributes and the shapes of their arguments."""
