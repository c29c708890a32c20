"""A3C in TensorFlow's Keras: for each actor, copying, playing and learning are one traced function each.

All functions are traced, and the optimizer's state is created, before any thread starts, because Keras keeps the state
of tracing in the process. Channels come last, also where activations are flattened; so the rows of the dense layer's
weight are in another order than torch's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow import keras

from tbdprof.suite.a3c import ENTROPY_WEIGHT, EPSILON, LARGEST_NORM, LEARNING_RATE, SQUARES_KEPT, initial
from tbdprof.suite.a3c.architecture import CONV1, CONV2, DENSE, FRAMES, MAP_SIDE, MAPS, POLICY, SIDE, VALUE
from tbdprof.suite.a3c.rollouts import Floats, Rollout
from tbdprof.suite.a3c.training import Workload, actors
from tbdprof.suite.initial import Weights
from tbdprof.suite.layers import Convolution, Dense
from tbdprof.suite.on_tensorflow import device_of, dtype_of, policy_of
from tbdprof.suite.workload import Config, Spec

Traced = Callable[..., Any]


class Network(keras.Model):  # type: ignore[misc]
    """Observations (batch, 84, 84, 4) to logits (batch, 6) and values (batch,)."""

    def __init__(self, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        self.conv1, self.conv2 = convolution(CONV1, dtype), convolution(CONV2, dtype)
        self.flatten = keras.layers.Flatten(name="flatten", dtype=dtype)
        self.dense = dense(DENSE, dtype, "relu")
        self.policy, self.value = dense(POLICY, dtype), dense(VALUE, dtype)

    def call(self, observations: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the policy's logits and the values, in the weights' precision."""
        x = self.dense(self.flatten(self.conv2(self.conv1(observations))))
        logits, values = self.policy(x), tf.squeeze(self.value(x), 1)
        return tf.cast(logits, self.variable_dtype), tf.cast(values, self.variable_dtype)


def convolution(layer: Convolution, dtype: str) -> keras.layers.Conv2D:
    """Return a convolution that does not pad, with ReLU."""
    return keras.layers.Conv2D(
        layer.outputs, layer.kernel, layer.stride, activation="relu", name=layer.name, dtype=dtype
    )


def dense(layer: Dense, dtype: str, activation: str | None = None) -> keras.layers.Dense:
    """Return a dense layer."""
    return keras.layers.Dense(layer.outputs, activation, name=layer.name, dtype=dtype)


class Agent:
    """One actor's copy of the network; see `tbdprof.suite.a3c.training.Agent`."""

    def __init__(self, shared: Network, copy: Network, optimizer: keras.optimizers.RMSprop, config: Config) -> None:
        self._config = config
        device = device_of(config)
        self._copy_shared = copying(shared, copy, device)
        self._evaluate = evaluating(copy, dtype_of(config), device)
        self._learn = learning(shared, copy, optimizer, config)

    def copy_shared(self) -> None:
        """Copy the shared parameters."""
        self._copy_shared()

    def evaluate(self, observations: NDArray[np.float32]) -> tuple[Floats, Floats]:
        """Return the copy's logits and values."""
        logits, values = self._evaluate(channels_last(observations, self._config))
        return logits.numpy(), values.numpy()

    def learn(self, rollout: Rollout) -> Callable[[], float]:
        """Update the shared parameters by the copy's gradients; return a function that awaits and returns the loss."""
        with tf.device(device_of(self._config)):
            actions = tf.constant(rollout.actions)
            returns = tf.constant(rollout.returns, dtype_of(self._config))
        loss = self._learn(channels_last(rollout.observations, self._config), actions, returns)
        return loss.numpy  # type: ignore[no-any-return]


def copying(shared: Network, copy: Network, device: str) -> Traced:
    """Return the traced function that copies the shared parameters."""

    @tf.function(jit_compile=False, input_signature=[])  # type: ignore[untyped-decorator]
    def copy_shared() -> None:
        with tf.device(device):
            for own, other in zip(copy.trainable_variables, shared.trainable_variables, strict=True):
                # Without a deep copy both would share memory until one of them is changed.
                own.assign(tf.raw_ops.DeepCopy(x=other.value))

    copy_shared.get_concrete_function()
    return copy_shared  # type: ignore[no-any-return]


def evaluating(copy: Network, dtype: tf.DType, device: str) -> Traced:
    """Return the traced function that evaluates a copy on any number of observations."""
    seen = tf.TensorSpec((None, SIDE, SIDE, FRAMES), dtype)

    @tf.function(jit_compile=False, input_signature=[seen])  # type: ignore[untyped-decorator]
    def evaluate(observations: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.device(device):
            logits, values = copy(observations)
            return logits, values

    evaluate.get_concrete_function()
    return evaluate  # type: ignore[no-any-return]


def learning(shared: Network, copy: Network, optimizer: keras.optimizers.RMSprop, config: Config) -> Traced:
    """Return the traced function that updates the shared parameters by the gradients of a copy."""
    device, dtype, steps = device_of(config), dtype_of(config), config.batch_size
    played = [
        tf.TensorSpec((steps, SIDE, SIDE, FRAMES), dtype),
        tf.TensorSpec((steps,), tf.int64),
        tf.TensorSpec((steps,), dtype),
    ]

    @tf.function(jit_compile=False, input_signature=played)  # type: ignore[untyped-decorator]
    def learn(observations: tf.Tensor, actions: tf.Tensor, returns: tf.Tensor) -> tf.Tensor:
        with tf.device(device):
            with tf.GradientTape() as tape:
                logits, values = copy(observations)
                loss = loss_of(logits, values, actions, returns)
            gradients = tape.gradient(loss, copy.trainable_variables)
            clipped, _ = tf.clip_by_global_norm(gradients, LARGEST_NORM)
            optimizer.apply(clipped, shared.trainable_variables)
            return loss

    learn.get_concrete_function()
    return learn  # type: ignore[no-any-return]


def loss_of(logits: tf.Tensor, values: tf.Tensor, actions: tf.Tensor, returns: tf.Tensor) -> tf.Tensor:
    """Return the loss summed over steps: the policy's loss, the value's loss, and the entropy bonus."""
    log_policy = tf.nn.log_softmax(logits)
    advantages = returns - values
    done = tf.gather(log_policy, actions, axis=1, batch_dims=1)
    entropies = -tf.reduce_sum(tf.exp(log_policy) * log_policy, 1)
    return tf.reduce_sum(0.5 * tf.square(advantages) - done * tf.stop_gradient(advantages) - ENTROPY_WEIGHT * entropies)


def build(spec: Spec, config: Config) -> Workload:
    """Return A3C with its initial weights and its actors on the device."""
    policy, count = policy_of(config), int(config.options["actors"])
    names = ["copy"] if count == 1 else [f"copy{number}" for number in range(count)]
    with tf.device(device_of(config)):
        shared, *copies = (Network(name, policy) for name in ("shared", *names))
        for network in (shared, *copies):
            network(keras.Input((SIDE, SIDE, FRAMES)))  # creates the weights without computing anything
            initialize(network, initial.weights(config.seed))
        optimizer = keras.optimizers.RMSprop(LEARNING_RATE, SQUARES_KEPT, epsilon=EPSILON)
        optimizer.build(shared.trainable_variables)
    agents = [Agent(shared, copy, optimizer, config) for copy in copies]
    return Workload(spec, config, [shared, *copies], [optimizer], (), agents, actors(agents, config))


def initialize(network: Network, weights: Weights) -> None:
    """Set the drawn parameters on a network."""
    known = {variable.path: variable for variable in network.trainable_variables}
    for name, values in weights:
        layer, kind = name.split(".")
        path = f"{network.name}/{layer}/{'kernel' if kind == 'weight' else kind}"
        known[path].assign(from_torch(name, values))


def from_torch(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return a parameter in Keras' order of axes, with the rows of flattened activations in Keras' order too."""
    if name == "dense.weight":
        return values.reshape(-1, MAPS, MAP_SIDE**2).transpose(2, 1, 0).reshape(-1, len(values))
    if values.ndim == 4:
        return values.transpose(2, 3, 1, 0)
    return values.T


def channels_last(observations: NDArray[np.float32], config: Config) -> tf.Tensor:
    """Return observations as a tensor on the device, channels last."""
    with tf.device(device_of(config)):
        return tf.constant(np.ascontiguousarray(observations.transpose(0, 2, 3, 1)), dtype_of(config))
