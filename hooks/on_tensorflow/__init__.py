"""TensorFlow: the facts that need no import of TensorFlow, and the hook."""

import json
import os
import re
from typing import TYPE_CHECKING

from tbdprof.facts.ranks import Rank, rank_of
from tbdprof.hooks.about import About, FailureText

if TYPE_CHECKING:
    from tbdprof.hooks.on_tensorflow.facade import TensorflowHook


def _rank() -> Rank | None:
    """Return the number of a worker, as `TF_CONFIG` lists them; a chief comes before the workers."""
    try:
        given = json.loads(os.environ.get("TF_CONFIG", ""))
        task, cluster = given["task"], given["cluster"]
        counts = {kind: len(cluster.get(kind, ())) for kind in ("chief", "master", "worker")}
        before = sum(list(counts.values())[: list(counts).index(task["type"])])
        return rank_of(before + int(task["index"]), sum(counts.values()))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


ABOUT = About(
    title="TensorFlow",
    no_step="no optimizer of Keras 3 updated a weight (those of Keras 2, tf_keras, are not followed)",
    probe="import tensorflow; print(tensorflow.__version__, len(tensorflow.config.list_physical_devices('GPU')))",
    records_gpu="import tensorflow; print('' if tensorflow.test.is_built_with_cuda() else 'not built for CUDA')",
    failure_text=FailureText(
        asked=re.compile(r"trying to allocate (\d+(?:\.\d+)?) *(bytes|[KMGT]?i?B)?", re.I),
        asked_tensor=re.compile(r"allocating tensor with shape\[([\d,]*)\] and type (\w+)"),
        of_host=re.compile(r"device:CPU:\d+ by allocator"),
    ),
    imported_by=("keras",),
    rank=_rank,
)


def hook() -> "TensorflowHook":
    """Return a new hook; TensorFlow is not imported yet."""
    from tbdprof.hooks.on_tensorflow.facade import TensorflowHook

    return TensorflowHook()
