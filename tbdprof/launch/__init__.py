"""Start a training run, or join one: a model of the suite, an unchanged script, a loop that a user wraps."""
