"""Training started by tbdprof: a model of the suite, or a script that knows nothing of it."""
