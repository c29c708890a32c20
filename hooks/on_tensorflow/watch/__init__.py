"""What is watched of the user's objects: models, layers, variables, optimizers, tapes, and memory owners."""
