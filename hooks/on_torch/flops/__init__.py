"""Counting FLOPs: an operator's name and arguments translated into what it computes."""
