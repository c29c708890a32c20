"""A command that runs in place of tbdprof: signals reach it, and it ends with tbdprof."""
