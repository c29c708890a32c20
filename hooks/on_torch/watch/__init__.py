"""What is watched of a loop: models, optimizers, who owns which memory, and threads."""
