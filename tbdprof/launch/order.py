"""How a process learns that it is to be recorded: the environment variable that holds the order."""

VARIABLE = "TBDPROF_ATTACH"
