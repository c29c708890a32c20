"""What is watched of a training loop: models, optimizers, memory owners, and threads."""
