"""A training loop, watched: warm-up, windows, and what happens where each begins and ends."""
