"""The names of the counters that a recording holds values of; each name says its unit.

A device's counters are sampled over time (`Sample`), or counted for one launch of a kernel (`Count`). Fractions are 0
to 1; they are fractions of time unless the name says otherwise.
"""

# The host's, and the loop's own; they grow.
PROCESS_CPU = "process_cpu_seconds"
MACHINE_CPU = "machine_busy_cpu_seconds"
RANKS_CPU = "ranks_cpu_seconds"  # of the other processes on this machine that train together with this one
WAITED_FOR_CORE = "waited_for_core_seconds"  # within blocks: a thread on average, ready to run while others ran
DATA_WAIT = "data_wait_seconds"

# The driver's account of a device (NVML).
ENERGY = "energy_joules"  # grows
POWER = "power_watts"
SM_CLOCK = "sm_clock_hz"
SM_CLOCK_MAX = "sm_clock_max_hz"
MEMORY_CLOCK = "memory_clock_hz"
TEMPERATURE = "temperature_celsius"
DRIVER_BUSY = "driver_busy"  # fraction of the driver's own period in which a kernel of any process ran
THROTTLE = "clock_reasons"  # bits of nvmlClocksEventReasons
DEVICE_TOTAL = "device_total_bytes"
DEVICE_RESERVED = "device_reserved_bytes"  # kept by the driver for itself; if reported, not part of what is used
DEVICE_USED = "device_used_bytes"  # by every process; includes what the driver keeps, if that is not reported apart
PROCESS_USED = "process_used_bytes"  # by this process, as the driver reports it
OTHERS_USED = "others_used_bytes"  # by other processes, as the driver reports it
ALLOCATOR_RESERVED = "allocator_reserved_bytes"  # what the framework's allocator holds of the device, in use or not
ALLOCATOR_ALLOCATED = "allocator_allocated_bytes"  # the part of it that is in use
ALLOCATOR_FRAGMENTS = "allocator_fragments_bytes"  # not in use, but in one piece of device memory with what is in use
ALLOCATOR_PRIVATE = "allocator_private_bytes"  # what is reserved for captured graphs and other pools of their own
DEVICE_FREE = "device_free_bytes"  # what the driver can still give

# Hardware counters over some time (NVML's GPM, prefix gpm_), fractions of the elapsed time or of what was possible.
GPM_BUSY = "gpm_graphics_busy"
GPM_SM_ACTIVE = "gpm_sm_active"
GPM_OCCUPANCY = "gpm_sm_occupancy"
GPM_FP32 = "gpm_fp32"
GPM_TENSOR = "gpm_tensor"
GPM_DRAM = "gpm_dram"

# Hardware counters sampled many times a step (CUPTI's PM sampling, prefix pm_), fractions of the elapsed time.
PM_BUSY = "pm_graphics_busy"
PM_SM_ACTIVE = "pm_sm_active"
PM_FP32 = "pm_fp32_pipe"  # of the FMA pipe, which takes FP32 and some integer arithmetic: an upper bound
PM_FP32_LITE = "pm_fp32_pipe_lite"  # of the half of it that takes FP32 alone: a lower bound
PM_TENSOR = "pm_tensor_pipe"
PM_WARPS = "pm_warps"  # active warps per active cycle of a processor cluster
PM_DRAM = "pm_dram"
PM_CLOCK = "pm_sm_clock_hz"
PM_LOST = "pm_lost_samples"  # samples of a window that were lost
PM_RESIDUAL = "pm_clock_residual_ns"  # how far the times of samples may be off after conversion to this clock

# Counts of one launch of a kernel (Nsight Compute).
COUNTED_NS = "counted_duration_ns"  # alone on the device, not as in training
COUNTED_FFMA = "counted_ffma"  # fused multiply-adds of threads in FP32: two FLOPs each
COUNTED_FADD = "counted_fadd"
COUNTED_FMUL = "counted_fmul"
COUNTED_FP32_PIPE = "counted_fp32_pipe"  # fraction of the elapsed time
COUNTED_TENSOR_PIPE = "counted_tensor_pipe"
COUNTED_PAIRS_PIPE = "counted_pairs_pipe"  # of it: multiplications of pairs of halves (HFMA2.MMA), not of matrices
COUNTED_TENSOR_OPS = "counted_tensor_ops"  # floating-point operations of the tensor cores, a multiply-add two; + _type
COUNTED_DRAM_BYTES = "counted_dram_bytes"

# Of the loop's own calls.
SYNCHRONIZING = "synchronizing"  # 1: from its start to its time the host waited for a device

# Of the instruments themselves.
CLOCK_RESIDUAL = "clock_residual_ns"  # how far a device's times may be off after conversion to this clock
LOST = "lost_records"  # records an instrument says or shows that it lost


def counted_tensor_ops(precision: str) -> str:
    """Return the counter of the tensor cores' operations on operands of a type: counted_tensor_ops_tf32."""
    return f"{COUNTED_TENSOR_OPS}_{precision}"
