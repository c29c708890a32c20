"""MXNet: the facts that need no import of MXNet, and the hook."""

from typing import TYPE_CHECKING

from tbdprof.hooks.about import About
from tbdprof.hooks.on_mxnet.thread_numbers import hashed

if TYPE_CHECKING:
    from tbdprof.hooks.on_mxnet.facade import MxnetHook

ABOUT = About(
    title="MXNet",
    no_step="no Trainer, Module or executor took a step",
    # MXNet reads numpy.bool, which newer releases of numpy lack.
    probe=(
        "import numpy; vars(numpy).setdefault('bool', bool); import mxnet; "
        "print(mxnet.__version__, mxnet.context.num_gpus())"
    ),
    number_of_thread=hashed,
    context=f"{__name__}.context",
    libraries={"libgomp.so.1": "libgomp1", "libquadmath.so.0": "libquadmath0"},
    numpy_below=2,
)


def hook() -> "MxnetHook":
    """Return a new hook; MXNet is not imported yet."""
    from tbdprof.hooks.on_mxnet.facade import MxnetHook

    return MxnetHook()
