"""Reasons why a result is missing, in the words of the reports."""

GPU_ONLY = "reported on a GPU only"
NOT_ASKED_FOR = "this precision was not requested before the run"
NOT_IN_TABLE = "the table has no peak for this kind of GPU"
NOT_COUNTED = "the framework keeps no count over the whole run on this device"
NOT_REPORTED = "the loop did not report it"
NOT_REQUESTED = "the allocator does not report both requested and allocated bytes"
NOT_JUDGED = "a warm-up of a fixed length is not judged"
ONE_BLOCK = "an interval needs two blocks of steps or more"
SEVERAL = "several shares may be the largest: the sentence names them"
LITTLE_COUNTED = "matmuls and convolutions with a FLOP count take less than half of the busy time"
LOW_UTILIZATION = "the utilization is so low that more than arithmetic limits the matmuls and convolutions"
DISTURBED_PEAK = "other processes had cores while the peak was measured: it may be higher"
ONE_STEP = "an interval needs two watched steps or more"
ONE_WINDOW = "needs two clean windows to compare"
NO_SAMPLES = "no samples were counted, and no batch size is known"
NO_PRODUCTS = "no operator reported a matmul or convolution"
NO_COMMUNICATION = "no communication was seen"
NO_BYTES = "the framework does not report what its collective operations are handed"
NO_RANK = "the process trains alone, or nothing gives its rank"
NO_WINDOW = "no kernels window was recorded"
NO_WAIT = "no call in which the host waits for the device was recorded"
NOT_OUT_OF_MEMORY = "the run did not end out of memory"
NOT_EXACT = "counted with --exact only"
ONE_LEVEL = "needs kernels that were counted (--exact) or sampled"
NO_SHARE = "no FLOPs of the run's could be compared with a peak"
NOT_SAMPLED_ALIKE = "no kernel of the kernels windows was sampled under the same name, grid and block"
NOT_BY_COUNTER = "Nsight Compute does not report it for this device"
NOT_RESERVED = "the framework does not report what its allocator reserves"
NOT_BY_DRIVER = "the driver does not report it"
NOT_BY_SAMPLER = "this device's counters of it were not sampled"
UNRECORDED = "no record of one came"
NOT_COMPARED = "the kernels windows recorded no kernels to compare the driver's figure with"
QUIET = frozenset(
    {
        GPU_ONLY,
        NO_COMMUNICATION,
        NO_RANK,
        NO_WINDOW,
        NO_WAIT,
        NOT_COMPARED,
        NOT_COUNTED,
        NOT_EXACT,
        NOT_OUT_OF_MEMORY,
        ONE_LEVEL,
        NOT_REPORTED,
        NOT_REQUESTED,
        NOT_JUDGED,
        ONE_BLOCK,
        ONE_STEP,
        SEVERAL,
        LITTLE_COUNTED,
        LOW_UTILIZATION,
        DISTURBED_PEAK,
        ONE_WINDOW,
    }
)
