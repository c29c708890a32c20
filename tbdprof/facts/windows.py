"""The names of the windows of a run."""

WARMUP = "warmup"
CLEAN = "clean"  # nothing watches: throughput is from here alone
MEMORY = "memory"
KERNELS = "kernels"
SAMPLED = "sampled"  # a kernels window beside which hardware counters are sampled
COUNTED = "counted"  # one step whose kernels Nsight Compute counted, in a process of its own
OUT_OF_MEMORY = "out_of_memory"  # no step: what was in memory where the loop ended out of it
