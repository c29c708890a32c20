"""tbdprof profiles deep-learning training: its memory, its time, and how well it uses the device.

The public names are those listed here, the types in `tbdprof.results` that a `Summary` is made of,
`tbdprof.keras.Callback` for Keras's `fit`, and the callbacks in `tbdprof.integrations`. Everything else may change from
one version to the next.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tbdprof.analysis.comparison.files import compare as compare
    from tbdprof.analysis.recordings import load as load
    from tbdprof.analysis.summary import summarize as summarize
    from tbdprof.errors import TbdprofError as TbdprofError
    from tbdprof.facts.consumed import Consumed as Consumed
    from tbdprof.facts.recording import Recording as Recording
    from tbdprof.facts.records import Role as Role
    from tbdprof.launch.own_loop import Profiler as Profiler
    from tbdprof.launch.own_loop import prepare as prepare
    from tbdprof.launch.own_loop import profile as profile
    from tbdprof.report.metrics.flat import figures as figures
    from tbdprof.results.summary import Summary as Summary
    from tbdprof.sweep.gathering import load_sweep as load_sweep

    __version__: str

_HOMES = {
    "Consumed": "facts.consumed",
    "Profiler": "launch.own_loop",
    "Recording": "facts.recording",
    "Role": "facts.records",
    "Summary": "results.summary",
    "TbdprofError": "errors",
    "compare": "analysis.comparison.files",
    "figures": "report.metrics.flat",
    "load": "analysis.recordings",
    "load_sweep": "sweep.gathering",
    "prepare": "launch.own_loop",
    "profile": "launch.own_loop",
    "summarize": "analysis.summary",
}

__all__ = [
    "Consumed",
    "Profiler",
    "Recording",
    "Role",
    "Summary",
    "TbdprofError",
    "__version__",
    "compare",
    "figures",
    "load",
    "load_sweep",
    "prepare",
    "profile",
    "summarize",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: importing tbdprof alone costs nothing."""
    from importlib import import_module

    if name == "__version__":
        return import_module("tbdprof.loop.version").version()
    if name in ("integrations", "keras"):  # which import what they are named after, and so only where asked for
        return import_module(f"tbdprof.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'tbdprof' has no attribute {name!r}")
    return getattr(import_module(f"tbdprof.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
