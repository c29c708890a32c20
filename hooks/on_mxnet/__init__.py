"""MXNet: the facts that need no import of MXNet, and the hook."""

import os
import sys
from typing import TYPE_CHECKING

from tbdprof.facts.ranks import Rank, rank_of
from tbdprof.hooks.about import About
from tbdprof.hooks.on_mxnet.thread_numbers import hashed

if TYPE_CHECKING:
    from tbdprof.hooks.on_mxnet.facade import MxnetHook


def _rank() -> Rank | None:
    """Return a worker's number, where the launcher of a distributed key-value store gives it."""
    if os.environ.get("DMLC_ROLE") != "worker":
        return None
    return rank_of(os.environ.get("DMLC_WORKER_ID"), os.environ.get("DMLC_NUM_WORKER"))


ABOUT = About(
    title="MXNet",
    no_step="no Trainer, Module or executor took a step",
    # MXNet reads numpy.bool, which later releases of numpy 1 lack.
    probe=(
        "import numpy; vars(numpy).setdefault('bool', bool)\n"
        "from tbdprof.hooks.on_mxnet.numpy_names import given_back\n"
        "with given_back(): import mxnet\n"
        "print(mxnet.__version__, mxnet.context.num_gpus())"
    ),
    number_of_thread=hashed,
    context=f"{__name__}.context",
    libraries={"libgomp.so.1": "libgomp1", "libquadmath.so.0": "libquadmath0"},
    # It asks for numpy 1, of which there is no wheel from Python 3.13 on; it runs with numpy 2.
    without_dependencies="mxnet==1.9.1" if sys.version_info >= (3, 13) else None,
    rank=_rank,
)


def hook() -> "MxnetHook":
    """Return a new hook; MXNet is not imported yet."""
    from tbdprof.hooks.on_mxnet.facade import MxnetHook

    return MxnetHook()
