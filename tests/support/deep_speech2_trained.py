"""Deep Speech 2, trained for two steps in each framework: its scores and weights by the names of `initial`."""

from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import tensorflow as tf
import torch
from numpy.typing import NDArray

from tbdprof.suite.data import speech
from tbdprof.suite.data.speech import Utterance, Utterances
from tbdprof.suite.deep_speech2 import SPEC, architecture, on_mxnet, on_tensorflow, on_torch
from tbdprof.suite.deep_speech2.architecture import CONVOLUTIONS, FEATURES, Normalization, Recurrent, width_of
from tbdprof.suite.workload import Config

Array = NDArray[np.float64]
Weights = dict[str, Array]

FRAMES = (43, 30, 21)
MODULES: dict[str, Any] = {"torch": on_torch, "mxnet": on_mxnet, "tensorflow": on_tensorflow}


def utterances(*frames: int, symbols: int = 3) -> Utterances:
    """Return a batch of noise of so many frames; what an utterance is depends on its length alone."""
    return speech.batch([_utterance(each, symbols) for each in frames])


def _utterance(frames: int, symbols: int) -> Utterance:
    random = np.random.default_rng(frames)
    sound = random.standard_normal((frames, speech.BINS), dtype=np.float32)
    return Utterance(sound, random.integers(1, 29, symbols, np.int32), frames / 100)


def scale(times: int, batch: int) -> Array:
    """Return what scores (times, batch, 29) are weighed with where a sum stands for the loss, which is float32's.

    It is so large that gradients are clipped.
    """
    return 300 * np.random.default_rng(5).standard_normal((times, batch, 29))


def weighed_in_torch(scores: torch.Tensor, _: object) -> torch.Tensor:
    """Return a sum instead of the loss."""
    return (scores * torch.from_numpy(scale(*scores.shape[:2]))).sum()


def weighed_in_mxnet(scores: Any, _: object) -> Any:
    """Return a sum instead of the loss."""
    return (scores * mx.nd.array(scale(*scores.shape[:2]), dtype="float64")).sum()


def weighed_in_tensorflow(scores: tf.Tensor, _: object) -> tf.Tensor:
    """Return a sum instead of the loss; scores have the batch first."""
    weights = scale(22, 3)  # the longest of FRAMES after the convolutions
    return tf.reduce_sum(scores * tf.constant(weights.swapaxes(0, 1)))


WEIGHED: dict[str, Callable[[Any, Any], Any]] = {
    "torch": weighed_in_torch,
    "mxnet": weighed_in_mxnet,
    "tensorflow": weighed_in_tensorflow,
}


def build(framework: str, config: Config) -> Any:
    """Return the workload."""
    return MODULES[framework].build(SPEC, config)


def scores_in_training(framework: str, workload: Any, batch: Utterances) -> Array:
    """Return the scores (times, batch, 29) as a training step computes them, by the statistics of the batch."""
    example = MODULES[framework].on_device(batch, workload.config)
    if framework == "torch":
        found: Array = workload.model(example.spectrograms, example.packing).detach().numpy()
        return found
    if framework == "mxnet":
        with mx.autograd.record():
            in_mxnet: Array = workload.model(example.spectrograms, example.packing).asnumpy()
        return in_mxnet
    scores = workload.model(example[0].spectrograms, example[0].packing, training=True)
    return np.asarray(scores).swapaxes(0, 1)


def weights(framework: str, workload: Any) -> Weights:
    """Return all that is trained, in torch's order of axes."""
    return {"torch": _torchs, "mxnet": _mxnets, "tensorflow": _tensorflows}[framework](workload)


def _names(config: Config) -> list[tuple[str, str]]:
    """Return each layer's name, and what there is of it."""
    found = []
    for layer in architecture.layers(width_of(config.options), str(config.options["cell"])):
        if isinstance(layer, Normalization):
            found += [(layer.name.replace("norm1", "conv1.norm").replace("norm2", "conv2.norm"), each) for each in "+*"]
        elif isinstance(layer, Recurrent):
            parts = ["inputs", "state", "inputs_bias", *(["state_bias"] if layer.cell == "gru" else [])]
            found += [(layer.name, part) for part in parts]
        else:
            found += [(layer.name, part) for part in (["weight"] if "conv" in layer.name else ["weight", "bias"])]
    return found


def _torchs(workload: on_torch.Workload) -> Weights:
    def called(layer: str, part: str) -> str:
        if part in "+*":
            place = layer if "conv" in layer else f"recurrent.{int(layer[len('recurrent') :].split('.')[0]) - 1}.norm"
            return f"{place}.{'bias' if part == '+' else 'weight'}"
        return on_torch.parameter_name(f"{layer}.{part}", workload.config.options)

    parameters = dict(workload.model.named_parameters())
    return {
        f"{layer}.{part}": parameters[called(layer, part)].detach().numpy().copy()
        for layer, part in _names(workload.config)
    }


def _mxnets(workload: on_mxnet.Workload) -> Weights:
    parameters = workload.model._collect_params_with_prefix()

    def called(layer: str, part: str) -> str:
        if part in "+*":
            place = layer if "conv" in layer else f"recurrent.{int(layer[len('recurrent') :].split('.')[0]) - 1}.norm"
            return f"{place}.{'beta' if part == '+' else 'gamma'}"
        return on_mxnet.parameter_name(f"{layer}.{part}", parameters)

    return {
        f"{layer}.{part}": parameters[called(layer, part)].data().asnumpy() for layer, part in _names(workload.config)
    }


def _tensorflows(workload: on_tensorflow.Workload) -> Weights:
    variables = {variable.path: np.asarray(variable) for variable in workload.model.trainable_variables}
    cell = str(workload.config.options["cell"])

    def found(layer: str, part: str) -> Array:
        place = f"deep_speech2/{layer.replace('.', '/')}"
        if part in "+*":
            return variables[f"{place}/{'beta' if part == '+' else 'gamma'}"]
        if layer.startswith("recurrent") and "bias" in part:
            inner = on_tensorflow.variable_path(f"{layer}.inputs", workload.config).removesuffix("kernel")
            both = variables[f"{inner}bias"]
            return reordered(both[int(part == "state_bias")]) if cell == "gru" else both
        if part == "bias":
            return variables[f"{place}/bias"]
        values = variables[on_tensorflow.variable_path(f"{layer}.{part}", workload.config)]
        if values.ndim == 4:
            return values.transpose(3, 2, 1, 0)
        values = values.T
        if layer.startswith("recurrent1.") and part == "inputs":
            bins = CONVOLUTIONS[-1].bins
            values = values.reshape(-1, bins, FEATURES // bins).transpose(0, 2, 1).reshape(-1, FEATURES)
        return reordered(values) if layer.startswith("recurrent") and cell == "gru" else values

    return {f"{layer}.{part}": found(layer, part) for layer, part in _names(workload.config)}


def reordered(values: Array) -> Array:
    """Return a GRU's gates as torch has them: reset, update, new."""
    update, reset, new = np.split(values, 3)
    return np.concatenate([reset, update, new])
