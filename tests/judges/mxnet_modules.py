"""Training loops in MXNet's Module API, as its own examples write them; `profile` stands for `tbdprof.profile`."""

import hashlib
import json
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

vars(np).setdefault("bool", bool)  # MXNet reads it
import mxnet as mx  # noqa: E402
from judges.process import Json, Profile  # noqa: E402

os.environ["MXNET_SUBGRAPH_VERBOSE"] = "0"  # or MXNet writes a line to stderr

BATCH, SIDE, CLASSES = 8, 12, 10
WORDS, WIDTH, UNITS = 30, 12, 16
USERS, ITEMS, FACTORS = 40, 30, 6


def digits() -> mx.io.NDArrayIter:
    """Return batches of made-up images, as many as an epoch needs."""
    made = np.random.RandomState(0)
    images = made.rand(4 * BATCH, 1, SIDE, SIDE).astype(np.float32)
    return mx.io.NDArrayIter(images, made.randint(0, CLASSES, 4 * BATCH).astype(np.float32), BATCH)


def convnet() -> mx.sym.Symbol:
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=8, name="conv1")
    net = mx.sym.BatchNorm(net, fix_gamma=False, name="bn1")
    net = mx.sym.Activation(net, act_type="tanh", name="tanh1")
    net = mx.sym.Pooling(net, pool_type="max", kernel=(2, 2), stride=(2, 2), name="pool1")
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=CLASSES, name="fc1")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def ready(module: mx.mod.BaseModule, batches: mx.io.DataIter, optimizer: str, **settings: float) -> None:
    module.bind(batches.provide_data, batches.provide_label)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer=optimizer, optimizer_params=tuple(settings.items()))


def train(profile: Profile, module: mx.mod.BaseModule, batches: mx.io.DataIter, metric: Any) -> int:
    """Train while the profiler is active; return the number of steps."""
    steps = 0
    with profile(module) as prof:
        while prof.active:
            step(module, batches, metric)
            prof.step(BATCH)
            steps += 1
    return steps


def step(module: mx.mod.BaseModule, batches: mx.io.DataIter, metric: Any) -> None:
    try:
        batch = batches.next()
    except StopIteration:
        batches.reset()
        batch = batches.next()
    module.forward_backward(batch)
    module.update()
    module.update_metric(metric, batch.label)


def digest(module: mx.mod.BaseModule) -> str:
    weights, _ = module.get_params()
    return hashlib.sha256(b"".join(weights[name].asnumpy().tobytes() for name in sorted(weights))).hexdigest()


def facts_of(module: mx.mod.BaseModule, **more: Any) -> Json:
    """Return the shapes of the parameters, the bytes of the running statistics, and the names, as MXNet gives them."""
    weights, statistics = module.get_params()
    buffers = sum(4 * math.prod(array.shape) for array in statistics.values())
    return {
        "parameters": [list(array.shape) for array in weights.values()],
        "names": sorted(weights),
        "buffer_bytes": buffers,
        **more,
    }


def mnist_module(batches: mx.io.DataIter) -> mx.mod.Module:
    mx.random.seed(0)
    np.random.seed(0)
    module = mx.mod.Module(convnet())
    ready(module, batches, "sgd", learning_rate=0.1, momentum=0.9)
    return module


def mnist(profile: Profile) -> Json:
    batches = digits()
    module = mnist_module(batches)
    steps = train(profile, module, batches, mx.metric.Accuracy())
    return facts_of(module, steps=steps, digest=digest(module))


def on_two_devices(profile: Profile) -> Json:
    """Each device has its copy of the weights, and the store through which they exchange gradients has one, too."""
    module, batches = mx.mod.Module(convnet(), context=[mx.cpu(0), mx.cpu(1)]), digits()
    ready(module, batches, "sgd", learning_rate=0.1, momentum=0.9)
    train(profile, module, batches, mx.metric.Accuracy())
    return facts_of(module)


class Sentences(mx.io.DataIter):
    """Batches of made-up sentences; all of a batch have one length."""

    def __init__(self, lengths: Sequence[int]) -> None:
        super().__init__(BATCH)
        self.lengths, self.default_bucket_key, self._next = lengths, max(lengths), 0
        self.provide_data, self.provide_label = self._shapes(self.default_bucket_key)

    def _shapes(self, length: int) -> tuple[list[mx.io.DataDesc], list[mx.io.DataDesc]]:
        return tuple([mx.io.DataDesc(name, (BATCH, length))] for name in ("data", "softmax_label"))  # type: ignore[return-value]

    def reset(self) -> None:
        self._next = 0

    def next(self) -> mx.io.DataBatch:
        if self._next == len(self.lengths):
            raise StopIteration
        length, self._next = self.lengths[self._next], self._next + 1
        words = mx.nd.array(np.random.RandomState(self._next).randint(0, WORDS, (BATCH, length)))
        data, label = self._shapes(length)
        return mx.io.DataBatch([words], [words], bucket_key=length, provide_data=data, provide_label=label)


def language_model(length: int) -> tuple[mx.sym.Symbol, tuple[str], tuple[str]]:
    net = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=WORDS, output_dim=WIDTH, name="embed")
    cell = mx.rnn.LSTMCell(UNITS, prefix="lstm_")
    outputs, _ = cell.unroll(length, inputs=net, merge_outputs=True)
    net = mx.sym.FullyConnected(mx.sym.Reshape(outputs, shape=(-1, UNITS)), num_hidden=WORDS, name="pred")
    label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
    return mx.sym.SoftmaxOutput(net, label, name="softmax"), ("data",), ("softmax_label",)


def bucketing(profile: Profile) -> Json:
    batches = Sentences((5, 3, 5, 4))
    module = mx.mod.BucketingModule(language_model, default_bucket_key=batches.default_bucket_key)
    ready(module, batches, "adam", learning_rate=0.01)
    train(profile, module, batches, mx.metric.Perplexity(None))
    return facts_of(module)


def factorization(profile: Profile) -> Json:
    """Matrix factorization with dense embeddings."""
    made = np.random.RandomState(0)
    ids = {"user": made.randint(0, USERS, 4 * BATCH), "item": made.randint(0, ITEMS, 4 * BATCH)}
    batches = mx.io.NDArrayIter(ids, {"score": made.rand(4 * BATCH).astype(np.float32)}, BATCH)
    user = mx.sym.Embedding(mx.sym.Variable("user"), input_dim=USERS, output_dim=FACTORS, name="users")
    item = mx.sym.Embedding(mx.sym.Variable("item"), input_dim=ITEMS, output_dim=FACTORS, name="items")
    score = mx.sym.sum(user * item, axis=1)
    net = mx.sym.LinearRegressionOutput(score, mx.sym.Variable("score"), name="loss")
    module = mx.mod.Module(net, data_names=("user", "item"), label_names=("score",))
    ready(module, batches, "sgd", learning_rate=0.1, momentum=0.9)
    train(profile, module, batches, mx.metric.MSE())
    return facts_of(module)


def sparse_factorization(profile: Profile) -> Json:
    """Matrix factorization in Gluon, whose gradients have only the rows of the batch."""
    users, items = (mx.gluon.nn.Embedding(count, FACTORS, sparse_grad=True) for count in (USERS, ITEMS))
    net = mx.gluon.nn.HybridSequential()
    net.add(users, items)
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    ids = mx.nd.arange(BATCH)
    with profile(net, trainer) as prof:
        while prof.active:
            with mx.autograd.record():
                loss = ((users(ids) * items(ids)).sum(axis=1) - 1) ** 2
            loss.backward()
            trainer.step(BATCH)
            prof.step(BATCH)
    return {"parameters": [[USERS, FACTORS], [ITEMS, FACTORS]]}


def gluon_on_two_devices(profile: Profile) -> Json:
    devices = [mx.cpu(0), mx.cpu(1)]
    net = dense()
    net.initialize(ctx=devices)
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    inputs = mx.nd.ones((BATCH, WIDTH))
    with profile(net, trainer) as prof:
        while prof.active:
            parts = mx.gluon.utils.split_and_load(inputs, devices)
            with mx.autograd.record():
                losses = [net(part).mean() for part in parts]
            for loss in losses:
                loss.backward()
            trainer.step(BATCH)
            prof.step(BATCH)
    return {"parameters": shapes_of(net)}


def by_hand(profile: Profile) -> Json:
    net = dense()
    net.initialize()
    inputs = mx.nd.ones((BATCH, WIDTH))
    with profile(net) as prof:
        while prof.active:
            with mx.autograd.record():
                loss = net(inputs).mean()
            loss.backward()
            for each in net.collect_params().values():
                each.data()[:] = each.data() - 0.1 * each.grad()
            prof.step(BATCH)
    return {"parameters": shapes_of(net), "buffer_bytes": 0}


def dense() -> mx.gluon.nn.HybridSequential:
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(UNITS, activation="relu", in_units=WIDTH), mx.gluon.nn.Dense(1, in_units=UNITS))
    return net


def shapes_of(net: mx.gluon.Block) -> list[list[int]]:
    return [list(each.shape) for each in net.collect_params().values()]


def main(steps: int) -> None:
    """Train some steps without tbdprof, and print what became of the weights."""
    batches, metric = digits(), mx.metric.Accuracy()
    module = mnist_module(batches)
    for _ in range(steps):
        step(module, batches, metric)
    print(json.dumps({"digest": digest(module)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
