"""FLOP counting: what operators compute, from their types, attributes and shapes."""
