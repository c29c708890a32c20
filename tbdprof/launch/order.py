"""The environment variable that orders a process to be recorded, and how recorded ranks are known."""

VARIABLE = "TBDPROF_ATTACH"
RANK = "rank"  # files beside the order's token are named after the ranks that are recorded: rank0, rank1
