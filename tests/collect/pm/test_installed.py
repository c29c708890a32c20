"""cupti-python as it is installed, where it is: that it has what is used of it. No device is asked."""

import inspect

import pytest

from tbdprof.collect.pm.with_cupti_python import Modules, find


@pytest.fixture(scope="module")
def modules() -> Modules:
    found = find()
    if found is None:
        pytest.skip("cupti-python from 13.3 on is not installed")
    return found


def test_a_collector_takes_what_it_is_given(modules: Modules):
    collector = modules.pm_sampling.Collector
    options = {"metrics", "hardware_buffer_size", "sampling_interval", "trigger_mode", "hw_buffer_append_mode"}

    assert {*options, "single_pass_metric_set_name"} <= set(inspect.signature(collector.configure).parameters)
    assert "device_index" in inspect.signature(collector).parameters
    assert "max_samples" in inspect.signature(collector.decode).parameters
    assert all(hasattr(collector, name) for name in ("enable", "start", "stop", "disable"))


def test_a_host_counts_passes_of_a_list_of_metrics(modules: Modules):
    host = modules.profiler_host.ProfilerHost

    assert list(inspect.signature(host).parameters) == ["chip_name", "profiler_type", "single_pass_metric_set_name"]
    assert all(hasattr(host, name) for name in ("initialize", "create_config_image", "deinitialize"))
    assert hasattr(modules.profiler_host, "get_num_of_passes")


def test_modes_errors_and_the_chip_have_their_names(modules: Modules):
    assert {"GPU_TIME_INTERVAL", "GPU_SYSCLK_INTERVAL"} <= set(modules.pm_sampling.TriggerMode.__members__)
    assert "KEEP_OLDEST" in modules.pm_sampling.HardwareBufferAppendMode.__members__
    assert modules.cupti.cuptiError(35).status == 35
    assert modules.cupti.DeviceGetChipNameParams().ptr
    assert modules.cupti.DEVICE_GET_CHIP_NAME_PARAMS_STRUCT_SIZE == 32
