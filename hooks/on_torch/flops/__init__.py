"""FLOP counting: translate an operator's name and arguments into what it computes."""
