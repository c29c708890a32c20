"""Import TensorFlow without its own messages on stderr; if the import fails, say which command to type."""

import importlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tbdprof.errors import UnavailableError

# Written at each start before TensorFlow sets up its logging, so no setting can silence it.
_NOISE = re.compile(
    r"^(WARNING: All log messages before absl::InitializeLog|I0000 |"
    r"[EW]0000 .*(cuInit|cuda drivers|Unable to register))"
)


def import_tensorflow() -> None:
    """Import TensorFlow; raise UnavailableError if that is not possible."""
    try:
        importlib.import_module("tensorflow")
        importlib.import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
        keras = importlib.import_module("keras")
    except ModuleNotFoundError as error:
        raise UnavailableError(_why_not(error)) from error
    except (ImportError, OSError) as error:
        raise UnavailableError(f"TensorFlow cannot be imported: {' '.join(str(error).split())}") from error
    backend = keras.config.backend()
    if backend != "tensorflow":
        instead = "choose --framework torch" if backend == "torch" else "set KERAS_BACKEND=tensorflow or torch"
        raise UnavailableError(f"Keras computes with {backend} here: {instead}")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep TensorFlow's start messages off stderr; pass everything else on at the end."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            written.seek(0)
            lines = written.read().decode(errors="replace").splitlines(keepends=True)
            sys.stderr.write("".join(line for line in lines if not _NOISE.match(line)))


def _why_not(error: ModuleNotFoundError) -> str:
    if error.name in ("tensorflow", "keras"):
        return f"{error.name} is not installed: pip install 'tbdprof[tensorflow]'"
    return f"this version of TensorFlow is not known here ({error}): pip install 'tbdprof[tensorflow]'"
