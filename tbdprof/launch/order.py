"""The environment variable that orders a process to be recorded."""

VARIABLE = "TBDPROF_ATTACH"
