"""tbdprof profiles the memory and the use of the device by deep-learning training."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tbdprof.analysis.summary import Summary as Summary
    from tbdprof.analysis.summary import summarize as summarize
    from tbdprof.errors import TbdprofError as TbdprofError
    from tbdprof.facts.consumed import Consumed as Consumed
    from tbdprof.facts.reading import load as load
    from tbdprof.facts.recording import Recording as Recording
    from tbdprof.keras import TbdprofCallback as TbdprofCallback
    from tbdprof.launch.own_loop import Profiler as Profiler
    from tbdprof.launch.own_loop import prepare as prepare
    from tbdprof.launch.own_loop import profile as profile

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
    "Consumed": "tbdprof.facts.consumed",
    "Profiler": "tbdprof.launch.own_loop",
    "Recording": "tbdprof.facts.recording",
    "Summary": "tbdprof.analysis.summary",
    "TbdprofCallback": "tbdprof.keras",
    "TbdprofError": "tbdprof.errors",
    "load": "tbdprof.facts.recording",
    "prepare": "tbdprof.launch.own_loop",
    "profile": "tbdprof.launch.own_loop",
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
