"""Plain training loops in MXNet's Gluon; `profile` stands for `tbdprof.profile`."""

import math
from collections.abc import Callable
from typing import Any

import mxnet as mx
from judges.process import Json, Profile
from mxnet import autograd, gluon

BATCH, SIDE, CLASSES = 4, 16, 10
KEPT_FLOATS = 1000
Loss = gluon.loss.SoftmaxCrossEntropyLoss


def facts_of(*nets: gluon.Block, **more: Any) -> Json:
    """Return the shapes of the parameters and the bytes of the running statistics, as Gluon alone reports them."""
    parameters = [parameter for net in nets for parameter in net.collect_params().values()]
    trained = [list(each.shape) for each in parameters if each.grad_req != "null"]
    buffers = [each.shape for each in parameters if each.grad_req == "null"]
    return {"parameters": trained, "buffer_bytes": sum(4 * math.prod(shape) for shape in buffers), **more}


def small_convnet() -> gluon.nn.HybridSequential:
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(8, 3, padding=1, use_bias=False),
        gluon.nn.BatchNorm(),
        gluon.nn.Activation("relu"),
        gluon.nn.Conv2D(16, 3, strides=2),
        gluon.nn.BatchNorm(),
        gluon.nn.Activation("relu"),
        gluon.nn.MaxPool2D(2),
        gluon.nn.Dense(CLASSES),
    )
    net.initialize()
    return net


def image_batch() -> tuple[mx.nd.NDArray, mx.nd.NDArray]:
    return mx.nd.random.normal(shape=(BATCH, 3, SIDE, SIDE)), mx.nd.random.randint(0, CLASSES, (BATCH,))


def train(
    profile: Profile,
    net: gluon.Block,
    optimizer: str,
    settings: dict[str, float],
    after: Callable[[], object] = lambda: None,
) -> Json:
    """Train a net on one batch; `after` is called at every step's end."""
    trainer = gluon.Trainer(net.collect_params(), optimizer, settings)
    images, labels = image_batch()
    loss_of = Loss()
    with profile(net, trainer) as prof:
        while prof.active:
            with autograd.record():
                loss = loss_of(net(images), labels)
            loss.backward()
            trainer.step(BATCH)
            after()
            prof.step(BATCH)
    return facts_of(net)


def without_a_block(profile: Profile) -> Json:
    """Weights are arrays with a gradient, updated by hand, as in MXNet's first tutorials."""
    weight, bias = mx.nd.random.normal(shape=(SIDE, CLASSES)), mx.nd.zeros((CLASSES,))
    for each in (weight, bias):
        each.attach_grad()
    with profile(framework="mxnet") as prof:
        while prof.active:
            inputs, labels = mx.nd.random.normal(shape=(BATCH, SIDE)), mx.nd.random.normal(shape=(BATCH, CLASSES))
            with autograd.record():
                loss = ((mx.nd.dot(inputs, weight) + bias - labels) ** 2).mean()
            loss.backward()
            for each in (weight, bias):
                each[:] = each - 0.1 * each.grad
            prof.step(BATCH)
    return {"parameters": [[SIDE, CLASSES], [CLASSES]], "buffer_bytes": 0}


def hybridized(profile: Profile) -> Json:
    net = small_convnet()
    net.hybridize()
    return train(profile, net, "sgd", {"momentum": 0.9})


def not_hybridized(profile: Profile) -> Json:
    return train(profile, small_convnet(), "adam", {})


def static_alloc(profile: Profile) -> Json:
    net = small_convnet()
    net.hybridize(static_alloc=True)
    return train(profile, net, "sgd", {"momentum": 0.9})


def planted_cache(profile: Profile) -> Json:
    net, cache = small_convnet(), []
    net.hybridize()
    return train(profile, net, "sgd", {"momentum": 0.9}, lambda: cache.append(mx.nd.zeros(KEPT_FLOATS)))


def planted_average(profile: Profile) -> Json:
    """An averaged copy of the weights, moved along in place."""
    net = small_convnet()
    net.hybridize()
    net(image_batch()[0])  # the shapes are known from here on
    weights = [each.data() for each in net.collect_params().values() if each.grad_req != "null"]
    average = [weight.copy() for weight in weights]

    def after() -> None:
        for mean, weight in zip(average, weights, strict=True):
            mean *= 0.9
            mean += 0.1 * weight

    return train(profile, net, "sgd", {"momentum": 0.9}, after)


def gan(profile: Profile) -> Json:
    generator, critic = gluon.nn.HybridSequential(), gluon.nn.HybridSequential()
    generator.add(gluon.nn.Dense(64, activation="relu"), gluon.nn.Dense(48))
    critic.add(gluon.nn.Dense(64, activation="relu"), gluon.nn.Dense(1))
    for net in (generator, critic):
        net.initialize()
        net.hybridize()
    trainers = [gluon.Trainer(net.collect_params(), "adam") for net in (generator, critic)]
    with profile([generator, critic], trainers) as prof:
        while prof.active:
            noise, real = mx.nd.random.normal(shape=(BATCH, 16)), mx.nd.random.uniform(shape=(BATCH, 48))
            with autograd.record():
                loss = critic(generator(noise).detach()).mean() - critic(real).mean()
            loss.backward()
            trainers[1].step(1)
            with autograd.record():
                loss = -critic(generator(noise)).mean()
            loss.backward()
            trainers[0].step(1)
            prof.step(BATCH)
    return facts_of(generator, critic)


def found(profile: Profile) -> Json:
    """Nothing is handed over."""
    net = small_convnet()
    net.hybridize()

    def watch(*_: object) -> Any:
        return profile(framework="mxnet")

    return train(watch, net, "adam", {})


def profiled_twice(profile: Profile) -> Json:
    net = small_convnet()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9})
    images, labels = image_batch()
    loss_of = Loss()
    for _ in range(2):
        with profile(net, trainer) as prof:
            while prof.active:
                with autograd.record():
                    loss = loss_of(net(images), labels)
                loss.backward()
                trainer.step(BATCH)
                prof.step(BATCH)
    return facts_of(net)
