"""WGAN-GP's critic in MXNet's Gluon, and the gradient of its scores written out as forward operators.

The penalty needs second gradients, and MXNet has none of convolutions and normalizations. So the first gradient is
written out here with forward operators, and MXNet's own backward pass goes through them. The gradient of each layer is
a block with that layer's parameters.
"""

from itertools import pairwise
from typing import Any

from mxnet.gluon import nn

from tbdprof.suite.wgan import NORM_EPSILON
from tbdprof.suite.wgan.architecture import SIDE, START, channels


class LayerNorm(nn.HybridBlock):  # type: ignore[misc]
    """A normalization over channel, height and width with a scale and a shift for each channel."""

    def __init__(self, channels: int, side: int, **names: Any) -> None:
        super().__init__(**names)
        self.places = side**2
        with self.name_scope():
            self.gamma = self.params.get("gamma", shape=(channels,), init="ones")
            self.beta = self.params.get("beta", shape=(channels,), init="zeros")

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:  # noqa: N803
        """Return normalized activations."""
        gamma, beta = at_places(F, gamma, self.places), at_places(F, beta, self.places)
        return F.reshape_like(F.LayerNorm(F.flatten(x), gamma, beta, eps=NORM_EPSILON), x)


class LayerNormGradient(nn.HybridBlock):  # type: ignore[misc]
    """Turns the gradient of a layer normalization's output into the gradient of its input."""

    def __init__(self, norm: LayerNorm) -> None:
        super().__init__(params=norm.params)
        self.places = norm.places
        self.gamma = self.params.get("gamma")

    def hybrid_forward(self, F: Any, x: Any, gradient: Any, gamma: Any) -> Any:  # noqa: N803
        """Return the gradient of the input `x`."""
        # Not `at_places`: were one expression twice in a graph, MXNet would run another graph, that has no layers.
        scale = F.reshape(F.broadcast_axis(F.reshape(gamma, (1, -1, 1)), axis=2, size=self.places), (1, -1))
        flat = F.flatten(x)
        centered = F.broadcast_sub(flat, F.mean(flat, axis=1, keepdims=True))
        variance = F.mean(F.square(centered), axis=1, keepdims=True)  # F.moments is wrong where nothing is recorded
        inverse = F.rsqrt(variance + NORM_EPSILON)
        normal = F.broadcast_mul(centered, inverse)
        gradient = F.broadcast_mul(F.flatten(gradient), scale)
        along = F.broadcast_mul(normal, F.mean(gradient * normal, axis=1, keepdims=True))
        gradient = F.broadcast_sub(gradient, F.mean(gradient, axis=1, keepdims=True)) - along
        return F.reshape_like(F.broadcast_mul(gradient, inverse), x)


class ConvolutionGradient(nn.HybridBlock):  # type: ignore[misc]
    """Turns the gradient of a convolution's output into that of its input: a convolution with the mirrored weight.

    A Deconvolution with the weight itself would compute the same. But MXNet's process dies if a Convolution and a
    Deconvolution share a weight.
    """

    def __init__(self, convolution: nn.Conv2D) -> None:
        super().__init__(params=convolution.params)
        self.weight = self.params.get("weight")

    def hybrid_forward(self, F: Any, gradient: Any, weight: Any) -> Any:  # noqa: N803
        """Return the gradient of the convolution's input."""
        _, inputs, kernel, _ = self.weight.shape
        mirrored = F.flip(F.transpose(weight, (1, 0, 2, 3)), axis=(2, 3))
        return F.Convolution(
            gradient,
            mirrored,
            kernel=(kernel, kernel),
            pad=(kernel // 2, kernel // 2),
            num_filter=inputs,
            no_bias=True,
        )


class DenseGradient(nn.HybridBlock):  # type: ignore[misc]
    """The gradient of a dense layer's input, for a layer with one output: the weight, in the activations' shape."""

    def __init__(self, dense: nn.Dense) -> None:
        super().__init__(params=dense.params)
        self.weight = self.params.get("weight")

    def hybrid_forward(self, F: Any, samples: Any, weight: Any) -> Any:  # noqa: N803
        """Return the gradient for as many samples as `samples` has."""
        maps = F.reshape(weight, (1, -1, START, START))
        return F.broadcast_like(maps, samples, lhs_axes=(0,), rhs_axes=(0,))


class DownBlock(nn.HybridBlock):  # type: ignore[misc]
    """A residual block that halves height and width after the second of two 3×3 convolutions, and in its shortcut."""

    def __init__(self, inputs: int, outputs: int, side: int, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.norm1 = LayerNorm(inputs, side)
            self.conv1 = nn.Conv2D(inputs, 3, padding=1, use_bias=False, in_channels=inputs)
            self.norm2 = LayerNorm(inputs, side)
            self.conv2 = nn.Conv2D(outputs, 3, padding=1, in_channels=inputs)
            self.shortcut = nn.Conv2D(outputs, 1, in_channels=inputs)
            self.relu = nn.Activation("relu")
            self.pool = nn.AvgPool2D(2)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        """Return the block's output."""
        *_, second = begun(self, x)
        return ended(self, x, second)


class DownBlockGradient(nn.HybridBlock):  # type: ignore[misc]
    """Turns the gradient of a block's output into the gradient of its input."""

    def __init__(self, block: DownBlock) -> None:
        super().__init__()
        self.norm1 = LayerNormGradient(block.norm1)
        self.conv1 = ConvolutionGradient(block.conv1)
        self.norm2 = LayerNormGradient(block.norm2)
        self.conv2 = ConvolutionGradient(block.conv2)
        self.shortcut = ConvolutionGradient(block.shortcut)

    def hybrid_forward(self, F: Any, gradient: Any, x: Any, first: Any, inner: Any, second: Any) -> Any:  # noqa: N803
        """Return the gradient of the block's input `x`; `first`, `inner` and `second` are the results of `begun`."""
        around = unpooled(F, self.shortcut(gradient))
        gradient = self.conv2(unpooled(F, gradient))
        gradient = self.norm2(inner, gradient * (second > 0))
        gradient = self.conv1(gradient)
        return self.norm1(x, gradient * (first > 0)) + around


class Critic(nn.HybridBlock):  # type: ignore[misc]
    """Turns pictures (batch, 3, 64, 64) into scores (batch,)."""

    def __init__(self, width: int, **names: Any) -> None:
        super().__init__(**names)
        joined = channels(width)
        with self.name_scope():
            self.conv = nn.Conv2D(joined[0], 3, padding=1, in_channels=3)
            for number, (inputs, outputs) in enumerate(pairwise(joined), 1):
                setattr(self, f"block{number}", DownBlock(inputs, outputs, SIDE >> (number - 1)))
            self.dense = nn.Dense(1, in_units=joined[-1] * START**2)  # flattens its input

    @property
    def blocks(self) -> tuple[DownBlock, ...]:
        """The residual blocks, in order."""
        return (self.block1, self.block2, self.block3, self.block4)

    def hybrid_forward(self, F: Any, pictures: Any) -> Any:  # noqa: N803
        """Return the scores."""
        x = self.conv(pictures)
        for block in self.blocks:
            x = block(x)
        return F.reshape(self.dense(x), (-1,))


class Penalty(nn.HybridBlock):  # type: ignore[misc]
    """The gradient penalty: the mean of (n - 1)².

    n is the norm of the gradient of a picture's score with respect to the picture. The block has only those parts of
    the critic that it uses: MXNet warns of parameters that a block has and does not use.
    """

    def __init__(self, critic: Critic) -> None:
        super().__init__()
        *lower, last = critic.blocks
        self.conv = critic.conv
        self.lower = nn.HybridSequential()
        self.lower.add(*lower)
        self.norm1, self.conv1, self.norm2, self.relu = last.norm1, last.conv1, last.norm2, last.relu
        self.dense_gradient = DenseGradient(critic.dense)
        self.gradients = nn.HybridSequential()
        self.gradients.add(*(DownBlockGradient(block) for block in critic.blocks))
        self.conv_gradient = ConvolutionGradient(critic.conv)

    def hybrid_forward(self, F: Any, pictures: Any) -> Any:  # noqa: N803
        """Return the penalty, before it is weighted."""
        lengths = F.sqrt(F.sum(F.square(F.flatten(self.slopes(pictures))), axis=1))
        return F.mean(F.square(lengths - 1))

    def slopes(self, pictures: Any) -> Any:
        """Return the gradient of each picture's score with respect to the picture."""
        x, passed = self.conv(pictures), []
        for block in self.lower:
            maps = begun(block, x)
            passed.append((x, *maps))
            x = ended(block, x, maps[-1])
        passed.append((x, *begun(self, x)))  # the scores themselves are not wanted
        gradient = self.dense_gradient(pictures)
        for block, of_block in zip(reversed(self.gradients), reversed(passed), strict=True):
            gradient = block(gradient, *of_block)
        return self.conv_gradient(gradient)


def begun(block: DownBlock | Penalty, x: Any) -> tuple[Any, Any, Any]:
    """Return a block's first activations: input and output of its first convolution, and input of its second one."""
    first = block.relu(block.norm1(x))
    inner = block.conv1(first)
    return first, inner, block.relu(block.norm2(inner))


def ended(block: DownBlock, x: Any, second: Any) -> Any:
    """Return a block's output, from its own input and that of its second convolution."""
    return block.pool(block.conv2(second)) + block.shortcut(block.pool(x))


def unpooled(F: Any, gradient: Any) -> Any:  # noqa: N803
    """Return the gradient of mean pooling's input: each of a window's four values has a quarter of the gradient."""
    return F.UpSampling(gradient, scale=2, sample_type="nearest") / 4


def at_places(F: Any, values: Any, places: int) -> Any:  # noqa: N803
    """Return values given per channel as values per position of flattened activations, (channels × places,)."""
    return F.reshape(F.broadcast_axis(F.reshape(values, (-1, 1)), axis=1, size=places), (-1,))
