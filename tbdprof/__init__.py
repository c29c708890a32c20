"""tbdprof profiles the memory and the use of the device by deep-learning training."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tbdprof.analysis.summary import Summary as Summary
    from tbdprof.analysis.summary import summarize as summarize
    from tbdprof.consumed import Consumed as Consumed
    from tbdprof.errors import TbdprofError as TbdprofError
    from tbdprof.on_tensorflow import TbdprofCallback as TbdprofCallback
    from tbdprof.own_loop import prepare as prepare
    from tbdprof.own_loop import profile as profile
    from tbdprof.profiler import Profiler as Profiler
    from tbdprof.recording import Recording as Recording
    from tbdprof.recording import load as load

__all__ = [
    "Consumed",
    "Profiler",
    "Recording",
    "Summary",
    "TbdprofCallback",
    "TbdprofError",
    "load",
    "prepare",
    "profile",
    "summarize",
]

_HOMES = {
    "Consumed": "tbdprof.consumed",
    "Profiler": "tbdprof.profiler",
    "Recording": "tbdprof.recording",
    "Summary": "tbdprof.analysis.summary",
    "TbdprofCallback": "tbdprof.on_tensorflow",
    "TbdprofError": "tbdprof.errors",
    "load": "tbdprof.recording",
    "prepare": "tbdprof.own_loop",
    "profile": "tbdprof.own_loop",
    "summarize": "tbdprof.analysis.summary",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: importing tbdprof alone costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tbdprof' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
