"""Record a training loop: the warm-up, then one window after another."""
