"""The kinds of events of torch's profiler, reported by the newer releases, inferred where an older one is silent."""

from dataclasses import dataclass

import pytest
import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile, record_function

from tbdprof.hooks.on_torch.kernels import event_kinds


@dataclass(frozen=True)
class Silent:
    """An event of a release that does not report its kind."""

    named: str
    on: DeviceType
    annotated: bool = False

    def name(self) -> str:
        return self.named

    def device_type(self) -> DeviceType:
        return self.on

    def is_user_annotation(self) -> bool:
        return self.annotated


CASES = {
    Silent("aten::mm", DeviceType.CPU): event_kinds.OPERATOR,
    Silent("autograd::engine::evaluate_function: MmBackward0", DeviceType.CPU): event_kinds.OPERATOR,
    Silent("cutlass::mine", DeviceType.CPU): event_kinds.OPERATOR,
    Silent("Optimizer.step#Adam.step", DeviceType.CPU, annotated=True): event_kinds.ANNOTATION,
    Silent("cudaLaunchKernel", DeviceType.CPU, annotated=True): event_kinds.ANNOTATION,
    Silent("cudaLaunchKernel", DeviceType.CPU): event_kinds.RUNTIME,
    Silent("cudaLaunchKernelExC", DeviceType.CPU): event_kinds.RUNTIME,
    Silent("cuLaunchKernelEx", DeviceType.CPU): event_kinds.RUNTIME,
    Silent("cudaMemcpyAsync", DeviceType.CPU): event_kinds.RUNTIME,
    Silent("Activity Buffer Request", DeviceType.CPU): event_kinds.OTHER,
    Silent("Runtime Triggered Module Loading", DeviceType.CPU): event_kinds.OTHER,
    Silent("Optimizer.step#Adam.step", DeviceType.CUDA, annotated=True): event_kinds.OTHER,
    Silent("Memcpy HtoD (Pageable -> Device)", DeviceType.CUDA): event_kinds.COPY,
    Silent("Memset (Device)", DeviceType.CUDA): event_kinds.SET,
    Silent("Memcpy2D_kernel", DeviceType.CUDA): event_kinds.KERNEL,
    Silent("Stream Wait Event", DeviceType.CUDA): event_kinds.OTHER,
    Silent("Context Sync", DeviceType.CUDA): event_kinds.OTHER,
    Silent("sm90_xmma_gemm_f32f32_tf32f32", DeviceType.CUDA): event_kinds.KERNEL,
    Silent("void at::native::vectorized_elementwise_kernel<4>(int)", DeviceType.CUDA): event_kinds.KERNEL,
}


@pytest.mark.parametrize(("event", "kind"), CASES.items(), ids=lambda each: getattr(each, "named", each))
def test_an_event_without_its_kind_is_known_by_its_place_and_name(event: Silent, kind: str) -> None:
    assert event_kinds.kind_of(event) == kind


def test_what_is_inferred_is_what_torch_reports_where_it_does() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    with profile(use_kineto=True, record_shapes=True) as session, record_function("a step"):
        net(torch.randn(2, 3, 8, 8)).sum().backward()
    events = session.kineto_results.events()
    inferred = {event.name(): event_kinds.kind_of(Silent(event.name(), event.device_type(), event.is_user_annotation()))
                for event in events}  # fmt: skip
    assert inferred == {event.name(): event_kinds.kind_of(event) for event in events}
    assert inferred["a step"] == event_kinds.ANNOTATION
    assert inferred["aten::convolution_backward"] == event_kinds.OPERATOR
