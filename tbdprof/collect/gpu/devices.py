"""Peak rates of known NVIDIA devices: dense, without sparsity, by compute capability and class of board.

A peak is multiprocessors × FLOP per clock of each × the highest clock that the driver reports, with one clock for all
precisions. A datasheet may use two clocks (an H100's FP32 at 1980 MHz, its BF16 at 1830 MHz), which must not be mixed.

FLOP per clock comes from the CUDA C++ Programming Guide, "Arithmetic Instructions" (FP32, FP64; a fused multiply-add is
two), and for tensor cores from the whitepapers of the architectures. The tests check each row against a board's
datasheet.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tbdprof.errors import UnavailableError
from tbdprof.facts.records import Peaks

Rates = Mapping[str, int]  # FLOP per clock of a multiprocessor, by precision

# Boards whose tensor cores have the full rate of their chip. Other boards of the same capability have less (an H20),
# and GeForce boards have half. A board in neither list has no tensor-core rate here.
_FULL = re.compile(
    r"\b(T4|Quadro RTX \d+|V100|A100|A800|A30|A40|A10|A2|A16|RTX A\d+|L4|L40S?|RTX \d+ Ada Generation"
    r"|H100|H200|GH200|B200|GB200|B300|GB300|RTX PRO \d+|Orin)\b"
)
_HALVED = re.compile(r"GeForce RTX (?!5090 D)")
_UNKNOWN_RATE = "the rate of this board's tensor cores is not known"


@dataclass(frozen=True, slots=True)
class _Chip:
    """A multiprocessor's FLOP per clock: on every board, on boards with the full rate, on GeForce boards."""

    every: Rates
    full: Rates = field(default_factory=dict)
    halved: Rates = field(default_factory=dict)


def _tensor(tf32: int, half: int, fp8: int) -> Rates:
    """Return rates of tensor cores that accumulate in FP32; 0 means the chip has no such matmul."""
    rates = {"tf32": tf32, "fp16": half, "bf16": half, "fp8": fp8}
    return {precision: rate for precision, rate in rates.items() if rate}


_CHIPS: Mapping[str, _Chip] = {
    "6.0": _Chip({"fp32": 128, "fp64": 64}),  # P100
    "6.1": _Chip({"fp32": 256, "fp64": 8}),
    "7.0": _Chip({"fp32": 128, "fp64": 64}, {"fp16": 1024}),  # V100
    "7.5": _Chip({"fp32": 128, "fp64": 4}, {"fp16": 1024}, {"fp16": 512}),
    "8.0": _Chip({"fp32": 128}, {"fp64": 128, **_tensor(1024, 2048, 0)}),  # A100; its tensor cores also compute FP64
    "8.6": _Chip({"fp32": 256, "fp64": 4}, _tensor(512, 1024, 0), _tensor(256, 512, 0)),
    "8.7": _Chip({"fp32": 256}, _tensor(1024, 2048, 0)),  # Orin
    "8.9": _Chip({"fp32": 256, "fp64": 4}, _tensor(512, 1024, 2048), _tensor(256, 512, 1024)),
    "9.0": _Chip({"fp32": 256}, {"fp64": 256, **_tensor(2048, 4096, 8192)}),  # H100, H200; FP64 as above
    "10.0": _Chip({"fp32": 256}, {"fp64": 128, **_tensor(4096, 8192, 16384)}),  # B200
    "10.3": _Chip({"fp32": 256}, _tensor(4096, 8192, 16384)),  # B300
    "12.0": _Chip({"fp32": 256, "fp64": 4}, _tensor(512, 1024, 2048), _tensor(256, 512, 1024)),
}


# A multiprocessor's FLOP per clock outside tensor cores, in precisions that tensor cores compute faster but only in
# matmuls; the precisions of `every` come in addition. Missing where NVIDIA does not publish it.
_VECTOR: Mapping[str, Rates] = {
    "7.0": {"fp16": 256},
    "7.5": {"fp16": 256},
    "8.0": {"fp64": 64, "fp16": 512, "bf16": 256},
    "8.6": {"fp16": 256, "bf16": 256},
    "8.9": {"fp16": 256, "bf16": 256},
    "9.0": {"fp64": 128, "fp16": 512, "bf16": 512},
    "12.0": {"fp16": 256, "bf16": 256},
}


def peaks(
    name: str,
    capability: str,
    *,
    multiprocessors: int,
    clock_hz: float,
    memory_bytes_per_s: float | None = None,
) -> Peaks:
    """Return a device's dense peaks from its name, its compute capability ("9.0") and its driver's clock.

    Raise UnavailableError for a capability that is not in the table. If a board's name does not show its class, its
    tensor cores have no figure, but a reason among the sources.
    """
    chip = _CHIPS.get(capability)
    if chip is None:
        known = ", ".join(_CHIPS)
        raise UnavailableError(f"the peak of {name} is not known (compute capability {capability}): known are {known}")
    if multiprocessors < 1 or clock_hz <= 0:
        raise UnavailableError(f"the peak of {name} is not known: its driver reports no multiprocessors or no clock")
    rates, vector = {**chip.every, **_of_class(chip, name)}, {**chip.every, **_VECTOR.get(capability, {})}
    beside = {f"vector {precision}": rate for precision, rate in vector.items() if rates.get(precision) != rate}
    sources = {
        precision: f"{multiprocessors} multiprocessors × {rate} FLOP a clock × {clock_hz / 1e6:.0f} MHz"
        for precision, rate in {**rates, **beside}.items()
    }
    unknown = {precision: _UNKNOWN_RATE for precision in chip.full if precision not in rates}
    memory = "its memory's clock × 2 × the width of its bus" if memory_bytes_per_s else "its driver does not report it"
    return Peaks(
        {precision: multiprocessors * rate * clock_hz for precision, rate in rates.items()},
        memory_bytes_per_s,
        {**sources, **unknown, "memory": memory},
        clock_hz,
        {precision: multiprocessors * rate * clock_hz for precision, rate in vector.items()},
    )


def _of_class(chip: _Chip, name: str) -> Rates:
    if _HALVED.search(name):
        return chip.halved
    return chip.full if _FULL.search(name) else {}
