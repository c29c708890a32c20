"""Advice that was tried: what to try, and what it brought."""
