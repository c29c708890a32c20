"""TensorFlow: the facts that need no import of TensorFlow, and the hook."""

from typing import TYPE_CHECKING

from tbdprof.hooks.about import About

if TYPE_CHECKING:
    from tbdprof.hooks.on_tensorflow.facade import TensorflowHook

ABOUT = About(
    title="TensorFlow",
    probe="import tensorflow; print(tensorflow.__version__, len(tensorflow.config.list_physical_devices('GPU')))",
    records_gpu="import tensorflow; print('' if tensorflow.test.is_built_with_cuda() else 'not built for CUDA')",
    imported_by=("keras",),
)


def hook() -> "TensorflowHook":
    """Return a new hook; TensorFlow is not imported yet."""
    from tbdprof.hooks.on_tensorflow.facade import TensorflowHook

    return TensorflowHook()
