"""NVIDIA's own table of a chip's metrics: libnvperf_host, which stands beside libcupti and needs no driver and no GPU.

Structures are those of its headers, nvperf_host.h and nvperf_cuda_host.h.
"""

import ctypes
from typing import Any

_Size, _Text, _Pointer = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p


class _Request(ctypes.Structure):
    """What a metric's name becomes; the tail after `submetric` is padding."""

    _fields_ = (
        ("index", _Size),
        ("kind", ctypes.c_uint8),
        ("rollup", ctypes.c_uint8),
        ("submetric", ctypes.c_uint16),
    )


class Library:
    """The library; raises OSError where it cannot be loaded or refuses to begin."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._call("NVPW_InitializeHost")

    def chips(self) -> list[str]:
        """Return the chips it knows: "GH100"."""
        params = self._call("NVPW_GetSupportedChipNames", names=ctypes.POINTER(_Text)(), count=_Size())
        return [params.names[place].decode() for place in range(params.count)]

    def has(self, chip: str, metric: str) -> bool:
        """Return whether a chip has a metric, its suffix included."""
        named = _Text(chip.encode())
        size = self._call(
            "NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", chip=named, image=_Pointer(), size=_Size()
        ).size
        scratch, request = (ctypes.c_uint8 * size)(), _Request()
        evaluator = self._call(
            "NVPW_CUDA_MetricsEvaluator_Initialize",
            scratch=_Pointer(ctypes.addressof(scratch)),
            size=_Size(size),
            chip=named,
            image=_Pointer(),
            data=_Pointer(),
            data_size=_Size(),
            evaluator=_Pointer(),
        ).evaluator
        try:
            self._call(
                "NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest",
                evaluator=_Pointer(evaluator),
                name=_Text(metric.encode()),
                request=_Pointer(ctypes.addressof(request)),
                request_size=_Size(_Request.submetric.offset + 2),
            )
        except OSError:
            return False
        finally:
            self._call("NVPW_MetricsEvaluator_Destroy", evaluator=_Pointer(evaluator))
        return True

    def _call(self, function: str, **fields: Any) -> Any:
        """Call a function with its structure filled in, and return that; raises OSError where it refuses."""
        layout = [
            ("size_of_it", _Size),
            ("private", _Pointer),
            *((name, type(value)) for name, value in fields.items()),
        ]
        parameters = type(function, (ctypes.Structure,), {"_fields_": layout})()
        parameters.size_of_it = ctypes.sizeof(parameters)
        for name, value in fields.items():
            setattr(parameters, name, value)
        status = getattr(self._library, function)(ctypes.byref(parameters))
        if status:
            raise OSError(f"{function}: status {status}")
        return parameters
