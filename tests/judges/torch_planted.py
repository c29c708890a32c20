"""Plain training loops in torch with memory planted in them that belongs to no part of training."""

import copy
import threading
from collections.abc import Callable
from typing import Any

import torch
from judges.process import Json, Profile
from judges.torch_loops import facts_of, image_batch, small_convnet, train
from torch import Tensor, nn
from torch.nn import functional

from tbdprof.hooks.on_torch.session import libraries

KEPT_FLOATS = 1000


def kept_tensors(profile: Profile, made: Callable[[], Tensor]) -> Json:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = image_batch()
    cache: list[Tensor] = []
    train(
        profile,
        model,
        optimizer,
        lambda: functional.cross_entropy(model(images), labels),
        after=lambda _: cache.append(made()),
    )
    return facts_of(model)


def cache(profile: Profile) -> Json:
    return kept_tensors(profile, lambda: torch.empty(KEPT_FLOATS))


def in_a_thread(profile: Profile) -> Json:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = image_batch()
    kept: list[Tensor] = []

    def after(step: int) -> None:
        if step == 5:  # the memory window's second
            thread = threading.Thread(target=lambda: kept.append(torch.empty(KEPT_FLOATS)))
            thread.start()
            thread.join()

    train(profile, model, optimizer, lambda: functional.cross_entropy(model(images), labels), after=after)
    return facts_of(model)


def in_a_thread_that_cannot_join(profile: Profile) -> Json:
    libraries._OF_THREADS = ("of another build",)
    return in_a_thread(profile)


def losses(profile: Profile) -> Json:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = image_batch()
    losses: list[Tensor] = []

    def loss_of() -> Tensor:
        losses.append(functional.cross_entropy(model(images), labels))
        return losses[-1]

    train(profile, model, optimizer, loss_of)
    return facts_of(model)


def average(profile: Profile) -> Json:
    """An averaged copy of the weights, moved along in place."""
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = image_batch()
    average = copy.deepcopy(model)

    def after(_: int) -> None:
        with torch.no_grad():
            for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(weight, 0.1)

    train(profile, model, optimizer, lambda: functional.cross_entropy(model(images), labels), after=after)
    return facts_of(model)


def renewed_average(profile: Profile) -> Json:
    """An averaged copy of the weights that every step makes anew."""
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = image_batch()
    average = [weight.detach().clone() for weight in model.parameters()]

    def after(_: int) -> None:
        average[:] = [
            mean * 0.9 + weight.detach() * 0.1 for mean, weight in zip(average, model.parameters(), strict=True)
        ]

    train(profile, model, optimizer, lambda: functional.cross_entropy(model(images), labels), after=after)
    return facts_of(model)


class Scratch(torch.autograd.Function):
    """The identity, with a buffer that it makes and drops on the way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        torch.empty(1 << 18).zero_()
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.clone()


def scratch(profile: Profile) -> Json:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = image_batch()
    train(profile, model, optimizer, lambda: functional.cross_entropy(Scratch.apply(model(images)), labels))
    return facts_of(model)


def columns(profile: Profile) -> Json:
    """A convolution in float64, whose columns (channels × kernel × places) are made and dropped within it."""
    model = nn.Conv2d(16, 4, 3, padding=1, bias=False).double()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    images = torch.randn(1, 16, 32, 32, dtype=torch.float64)
    train(profile, model, optimizer, lambda: model(images).sum())
    return {}
