"""The facts that a recording keeps of TensorFlow's models, optimizers and process."""

import os
import platform
import re
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tbdprof.collect import host
from tbdprof.collect.gpu import cuda_driver
from tbdprof.collect.gpu.context import has_driver
from tbdprof.errors import UnavailableError, UsageError
from tbdprof.facts.records import Optimizer, Parameter
from tbdprof.hooks.keras_objects import trained_by
from tbdprof.hooks.naming import optimizer_kind
from tbdprof.hooks.on_tensorflow.watch import owners
from tbdprof.hooks.on_tensorflow.watch.variables import copies

_KINDS = {"SGD": "sgd", "Adam": "adam", "AdamW": "adamw", "RMSprop": "rmsprop"}
_SETTINGS = ("momentum", "amsgrad", "centered")


def choose_device(wanted: str) -> str:
    """Return "cpu" or "cuda:N" for auto, cpu, cuda or cuda:N; make TensorFlow use that device if it still can."""
    gpus = tf.config.list_physical_devices("GPU")
    match = re.fullmatch(r"auto|cpu|cuda(?::(\d+))?", wanted)
    if match is None:
        raise UsageError(f"unknown device {wanted!r}: choose auto, cpu, cuda or cuda:N")
    if wanted == "cpu" or (wanted == "auto" and not gpus):
        if gpus:
            tf.config.set_visible_devices([], "GPU")
        return "cpu"
    number = int(match[1] or 0)
    if number >= len(gpus):
        seen = f"the last one is cuda:{len(gpus) - 1}" if gpus else _why_none()
        raise UnavailableError(f"TensorFlow sees no device {wanted}: {seen}")
    return f"cuda:{number}"


def _why_none() -> str:
    """Return why TensorFlow may have no GPU: if it cannot load one of CUDA's libraries, it runs without a GPU."""
    if not tf.test.is_built_with_cuda():
        return "it is built without CUDA; choose --device cpu"
    if not has_driver():
        return "there is no NVIDIA driver; choose --device cpu"
    return "it did not find all of CUDA's libraries (`pip install 'tensorflow[and-cuda]'`); or choose --device cpu"


def set_threads(threads: int) -> None:
    """Set the threads within an operator and across operators; raise UnavailableError if it is too late."""
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    except RuntimeError as error:
        raise UnavailableError(f"TensorFlow has begun: its threads can no longer be {threads}") from error


def threads() -> int:
    """Return how many threads an operator may use; TensorFlow's 0 means all cores."""
    asked: int = tf.config.threading.get_intra_op_parallelism_threads()
    return asked or len(os.sched_getaffinity(0))


def settings() -> Mapping[str, str]:
    """Return the other settings that decide how TensorFlow computes."""
    inter = tf.config.threading.get_inter_op_parallelism_threads() or len(os.sched_getaffinity(0))
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    policy = str(keras.config.dtype_policy().name)
    return {"inter-op threads": str(inter), "tf32": str(bool(tf32)).lower(), "keras dtype policy": policy}


def device_of(watched: owners.Watched) -> str | None:
    """Return the device of the watched variables, or None if there are none."""
    return next((owners.device_text(each.variable.device) for each in watched.variables()), None)


def device_name(device: str) -> str:
    """Return the name that the device reports."""
    if device == "cpu":
        return host.processor_name() or platform.processor()
    gpus = tf.config.list_physical_devices("GPU")
    number = cuda_driver.index_of(device)
    if number >= len(gpus):
        return ""
    return str(tf.config.experimental.get_device_details(gpus[number]).get("device_name", ""))


def parameter_list(watched: owners.Watched) -> list[Parameter]:
    """Return weights and buffers, each once."""
    return [
        Parameter(
            each.name,
            tuple(each.variable.shape.as_list()),
            each.variable.dtype.size,
            trainable=each.trainable,
            is_buffer=each.is_buffer,
        )
        for each in watched.variables()
    ]


def optimizer_list(watched: owners.Watched) -> list[Optimizer]:
    """Return the optimizers, each with the parameters that it updates."""
    names = {id(each.variable): each.name for each in watched.variables()}
    return [
        Optimizer(
            _kind(optimizer),
            tuple(names[id(copy)] for each in trained_by(optimizer) for copy in copies(each)),
            _state(optimizer),
        )
        for optimizer in watched.optimizers()
    ]


def _kind(optimizer: Any) -> str:
    """Return the optimizer's kind; one that keeps averages or sums beside its state is a kind of its own."""
    kind = optimizer_kind(type(optimizer), _KINDS, ("keras",)).lower()
    averages = bool(getattr(optimizer, "use_ema", False)) or bool(getattr(optimizer, "gradient_accumulation_steps", 0))
    return f"{kind} with averages" if averages else kind


def _state(optimizer: Any) -> dict[str, float]:
    """Return the settings that decide the size of a parameter's state; Keras has one step counter for all of them."""
    settings = {name: float(getattr(optimizer, name)) for name in _SETTINGS if hasattr(optimizer, name)}
    return {**settings, "scalar_bytes": 0.0}
