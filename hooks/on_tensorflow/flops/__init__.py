"""Counting of FLOPs: what operators compute, from their types, attributes and shapes."""
