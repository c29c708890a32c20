"""TensorFlow: the facts that need no import of TensorFlow, and the hook."""

import re
from typing import TYPE_CHECKING

from tbdprof.hooks.about import About, FailureText

if TYPE_CHECKING:
    from tbdprof.hooks.on_tensorflow.facade import TensorflowHook

ABOUT = About(
    title="TensorFlow",
    no_step="no optimizer of Keras updated a weight",
    probe="import tensorflow; print(tensorflow.__version__, len(tensorflow.config.list_physical_devices('GPU')))",
    records_gpu="import tensorflow; print('' if tensorflow.test.is_built_with_cuda() else 'not built for CUDA')",
    failure_text=FailureText(
        asked=re.compile(r"trying to allocate (\d+(?:\.\d+)?) *(bytes|[KMGT]?i?B)?", re.I),
        asked_tensor=re.compile(r"allocating tensor with shape\[([\d,]*)\] and type (\w+)"),
        of_host=re.compile(r"device:CPU:\d+ by allocator"),
    ),
    imported_by=("keras",),
)


def hook() -> "TensorflowHook":
    """Return a new hook; TensorFlow is not imported yet."""
    from tbdprof.hooks.on_tensorflow.facade import TensorflowHook

    return TensorflowHook()
