"""How many FLOPs MXNet's operators take, from their attributes and the shapes of their arguments."""
