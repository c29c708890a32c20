"""The instruments of a run, by its device."""

from tbdprof.collect import Collector
from tbdprof.collect.activity.collector import ActivityCollector
from tbdprof.collect.gpu import cuda_driver
from tbdprof.collect.gpu.nvml import PERIOD_S, NvmlSampler
from tbdprof.collect.host_load import OF_HOST, OF_RANKS, Counters, HostLoad
from tbdprof.collect.pm.collector import CounterSampler, available
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.windows import CLEAN, KERNELS, MEMORY, SAMPLED
from tbdprof.hooks import about
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.plan import NO_STEPS, WITH_SAMPLED, Progress, silent


def instruments_for(
    device: str,
    framework: str,
    counters: Counters | None = None,
    *,
    is_together: bool = False,
    power_period_s: float = PERIOD_S,
    progress: Progress = silent,
) -> Instruments:
    """Return the instruments for a device ("cpu", "cuda:0"); start none of them, and raise nothing.

    `counters` are the loop's own; like the host's they grow, and are read at the edges of clean windows. `is_together`
    says that other processes train together with this one. `power_period_s` is the time between two samples of a GPU's
    power. `progress` is called before slow operations.
    """
    host = HostLoad({**OF_HOST, **(OF_RANKS if is_together else {}), **(counters or {})})
    if not device.startswith("cuda"):
        return Instruments({CLEAN: [host]})
    driver = NvmlSampler(cuda_driver.index_of(device), period_s=power_period_s)
    # Only one client per process can use CUPTI's activities; a framework's own profiler may be that client.
    facts = about(framework)
    kernels = [] if facts.records_gpu else [ActivityCollector(number_of_thread=facts.number_of_thread)]
    collectors: dict[str, list[Collector]] = {
        CLEAN: [driver, host],  # the host last, so that it does not count the other's start
        MEMORY: [driver],
        KERNELS: [*kernels, driver],
    }
    progress("try the GPU's counters", 0, NO_STEPS)
    unavailable = available(device)
    if unavailable is not None:
        return Instruments(collectors, missing={ReasonFor.SAMPLED: unavailable})
    collectors[SAMPLED] = [CounterSampler(device), *kernels, driver]  # the first takes seconds to start
    return Instruments(collectors, WITH_SAMPLED)
