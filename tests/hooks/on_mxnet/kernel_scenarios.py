"""Trainings recorded in windows of kernels by one hook in a process of its own.

python kernel_scenarios.py RESULT
"""

import gc
import pickle
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tbdprof.facts.records import Strings
from tbdprof.facts.rows import Table
from tbdprof.hooks import Setting
from tbdprof.hooks.on_mxnet import hook
from tbdprof.hooks.on_mxnet.facade import MxnetHook

STEPS = 2


@dataclass
class Window:
    spans: Table
    marks: list[int]
    missing: dict[str, str]
    strings: Strings
    way: str  # that the events took


@dataclass
class Result:
    windows: dict[str, Window]
    same_weights: bool
    bulks: tuple[int, int]  # bulks of operators MXNet made before and after a window of kernels
    memory: dict[str, Table]  # of a memory window after all the others
    independent_total: str | None
    before: dict[str, int]
    after: dict[str, int]
    leftovers: list[str]  # what the windows left in the folder for temporary files


def train(model: Any, loss: Callable[[Any], Any], batch: Any, optimizer: str = "sgd") -> tuple[Any, Callable[[], None]]:
    from mxnet import autograd, gluon

    trainer = gluon.Trainer(model.collect_params(), optimizer, {"learning_rate": 0.01})

    def step() -> None:
        with autograd.record():
            value = loss(model(batch))
        value.backward()
        trainer.step(1)

    return trainer, step


def record(mxnet_hook: MxnetHook, model: Any, trainer: Any, step: Callable[[], None]) -> Window:
    mxnet_hook.watch([model], [trainer])
    step()
    mxnet_hook.synchronize()
    mxnet_hook.start("kernels")
    for _ in range(STEPS):
        step()
        mxnet_hook.synchronize()
        mxnet_hook.mark_step()
    mxnet_hook.stop()
    strings = Strings()
    drained = mxnet_hook.drain(strings)
    missing = dict(drained.missing)
    way = missing.pop("events (kernels)")
    return Window(drained.tables["span"], list(drained.marks), missing, strings, way)


def total(value: Any) -> Any:
    return value.sum()


def initialized(model: Any, **hybrid: bool) -> Any:
    model.initialize()
    if hybrid:
        model.hybridize(**hybrid)
    return model


def resnet(mxnet_hook: MxnetHook, **hybrid: bool) -> Window:
    import mxnet as mx

    from tbdprof.suite.resnet50.on_mxnet import ResNet50

    model = initialized(ResNet50(), **hybrid)
    return record(mxnet_hook, model, *train(model, total, mx.nd.ones((1, 3, 64, 32))))


def resnet_hybrid(mxnet_hook: MxnetHook) -> Window:
    return resnet(mxnet_hook, active=True)


def resnet_imperative(mxnet_hook: MxnetHook) -> Window:
    return resnet(mxnet_hook)


def resnet_static(mxnet_hook: MxnetHook) -> Window:
    return resnet(mxnet_hook, static_alloc=True)


def resnet_static_shape(mxnet_hook: MxnetHook) -> Window:
    return resnet(mxnet_hook, static_alloc=True, static_shape=True)


def convolutions(mxnet_hook: MxnetHook) -> Window:
    import mxnet as mx
    from mxnet.gluon import nn

    model = nn.HybridSequential()
    model.add(nn.Conv2D(6, 3, padding=2, dilation=2, groups=2, in_channels=4))
    model.add(nn.Conv2DTranspose(5, 4, strides=2, padding=1, in_channels=6, use_bias=False))
    return record(mxnet_hook, model, *train(initialized(model, active=True), total, mx.nd.ones((2, 4, 9, 7))))


def lstm(mxnet_hook: MxnetHook) -> Window:
    import mxnet as mx
    from mxnet.gluon import nn, rnn

    model = nn.HybridSequential()
    model.add(rnn.LSTM(5, num_layers=2, bidirectional=True, input_size=3))
    return record(mxnet_hook, model, *train(initialized(model, active=True), total, mx.nd.ones((4, 2, 3))))


def transformer_model(**hybrid: bool) -> Any:
    from mxnet import gluon
    from mxnet.gluon import nn

    class Attention(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.query, self.key, self.value, self.out = (nn.Dense(8, flatten=False, in_units=8) for _ in range(4))

        def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
            scores = F.softmax(F.batch_dot(self.query(x), self.key(x), transpose_b=True) / 8**0.5)
            return self.out(F.batch_dot(scores, self.value(x)))

    class Transformer(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.embedding = nn.Embedding(11, 8)
                self.attention = Attention()
                self.norm1, self.norm2 = nn.LayerNorm(in_channels=8), nn.LayerNorm(in_channels=8)
                self.wide = nn.Dense(16, flatten=False, in_units=8)
                self.gelu = nn.GELU()
                self.narrow = nn.Dense(8, flatten=False, in_units=16)
                self.head = nn.Dense(11, flatten=False, in_units=8)

        def hybrid_forward(self, F: Any, tokens: Any) -> Any:  # noqa: N803
            x = self.embedding(tokens)
            x = self.norm1(x + self.attention(x))
            return self.head(self.norm2(x + self.narrow(self.gelu(self.wide(x)))))

    return initialized(Transformer(), **hybrid)


def transformer(mxnet_hook: MxnetHook, **hybrid: bool) -> Window:
    import mxnet as mx
    from mxnet import gluon

    loss, labels = gluon.loss.SoftmaxCrossEntropyLoss(), mx.nd.zeros((2, 5))
    model = transformer_model(**hybrid)
    tokens = mx.nd.array([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]])
    return record(mxnet_hook, model, *train(model, lambda x: loss(x, labels), tokens, "adam"))


def transformer_hybrid(mxnet_hook: MxnetHook) -> Window:
    return transformer(mxnet_hook, active=True)


def transformer_imperative(mxnet_hook: MxnetHook) -> Window:
    return transformer(mxnet_hook)


def before_the_first_block(mxnet_hook: MxnetHook) -> Window:
    """A product under `record()` comes before any block does."""
    import mxnet as mx
    from mxnet.gluon import nn

    model = initialized(nn.Dense(3, in_units=4))
    weight, batch = mx.nd.ones((5, 4)), mx.nd.ones((2, 5))
    weight.attach_grad()
    return record(mxnet_hook, model, *train(Computation(model, lambda x: model(mx.nd.dot(x, weight))), total, batch))


def one_layer_twice(mxnet_hook: MxnetHook) -> Window:
    import mxnet as mx
    from mxnet.gluon import nn

    model = initialized(nn.Dense(4, in_units=4))
    return record(mxnet_hook, model, *train(Computation(model, lambda x: model(model(x))), total, mx.nd.ones((2, 4))))


def evaluated_on_the_same_batch(mxnet_hook: MxnetHook) -> Window:
    import mxnet as mx
    from mxnet.gluon import nn

    model = nn.HybridSequential()
    model.add(nn.Dense(4, in_units=4, activation="tanh"), nn.Dense(1, in_units=4))
    batch = mx.nd.ones((2, 4))
    trainer, step = train(initialized(model, active=True), total, batch)

    def both() -> None:
        model(batch).wait_to_read()
        step()
        model(batch).wait_to_read()

    return record(mxnet_hook, model, trainer, both)


def pooled_and_flattened(mxnet_hook: MxnetHook) -> Window:
    import mxnet as mx
    from mxnet.gluon import nn

    model = nn.HybridSequential()
    model.add(nn.Conv2D(4, 3, in_channels=2), nn.MaxPool2D(2), nn.Flatten(), nn.Dropout(0.5), nn.Dense(3, in_units=16))
    return record(mxnet_hook, model, *train(initialized(model, active=True), total, mx.nd.ones((2, 2, 6, 6))))


def numpy_products(mxnet_hook: MxnetHook) -> Window:
    import mxnet as mx
    from mxnet.gluon import nn

    model = initialized(nn.Dense(2, in_units=2))
    one, other = mx.np.ones((2, 3, 4)), mx.np.ones((4, 5))
    one.attach_grad()
    other.attach_grad()

    def products(x: Any) -> Any:
        made = mx.np.matmul(one, other) + mx.np.dot(one, other) + mx.np.einsum("abc,cd->abd", one, other)
        return model(x).sum() + made.as_nd_ndarray().sum()

    return record(mxnet_hook, model, *train(Computation(model, products), total, mx.nd.ones((2, 2))))


def sparse_rows(mx: Any) -> Any:
    """Three rows of five with 1, 2 and 4 values; how many values rows of it have is known once they were taken."""
    data = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [0, 2, 4, 0, 1, 2, 3], [0, 1, 3, 7]
    return mx.nd.sparse.csr_matrix(data, shape=(3, 5))


def sparse_products(mxnet_hook: MxnetHook) -> Window:
    """The first two rows by a dense matrix, and, transposed, by another one that wants no gradient."""
    import mxnet as mx
    from mxnet.gluon import nn

    model, whole = initialized(nn.Dense(3, in_units=4)), sparse_rows(mx)
    weight, other = mx.nd.ones((5, 4)), mx.nd.ones((2, 6))
    weight.attach_grad()

    def products(_: Any) -> Any:
        some = whole[0:2]
        turned = mx.nd.sparse.dot(some, other, transpose_a=True, forward_stype="default")
        return model(mx.nd.sparse.dot(some, weight)).sum() + turned.sum()

    return record(mxnet_hook, model, *train(Computation(model, products), total, mx.nd.ones((2, 2))))


def sparse_in_a_graph(mxnet_hook: MxnetHook) -> Window:
    """The last row by a weight, and what no graph says to be dense by another one."""
    import mxnet as mx
    from mxnet import gluon

    class Sparse(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.weight = self.params.get("weight", shape=(5, 4))
                self.other = self.params.get("other", shape=(5, 2))

        def hybrid_forward(self, F: Any, x: Any, weight: Any, other: Any) -> Any:  # noqa: N803
            return F.dot(x, weight).sum() + F.dot(F.square(x), other).sum()

    model, whole = initialized(Sparse(), active=True), sparse_rows(mx)
    return record(mxnet_hook, model, *train(Computation(model, lambda _: model(whole[2:3])), total, mx.nd.ones((2, 2))))


def sparse_by_sparse(mxnet_hook: MxnetHook) -> Window:
    """It is not known which values of the one meet rows of the other."""
    import mxnet as mx
    from mxnet.gluon import nn

    model, whole = initialized(nn.Dense(3, in_units=4)), sparse_rows(mx)
    rows = mx.nd.sparse.row_sparse_array((mx.nd.ones((2, 4)), [0, 3]), shape=(5, 4))
    call = Computation(model, lambda _: model(mx.nd.sparse.dot(whole, rows)))
    return record(mxnet_hook, model, *train(call, total, mx.nd.ones((2, 2))))


def sparse_in_a_module(mxnet_hook: MxnetHook) -> Window:
    """Batches of one row each, with 1, 2 and 4 values; the first one comes before the window."""
    import mxnet as mx

    given, weight = mx.sym.Variable("data", stype="csr"), mx.sym.Variable("weight", shape=(5, 4))
    loss = mx.sym.SoftmaxOutput(mx.sym.sparse.dot(given, weight), mx.sym.Variable("softmax_label"))
    module, whole = mx.mod.Module(loss), sparse_rows(mx)
    module.bind([("data", (1, 5))], [("softmax_label", (1,))])
    module.init_params()
    module.init_optimizer()
    batches = iter([mx.io.DataBatch([whole[row : row + 1]], [mx.nd.zeros((1,))]) for row in range(3)])

    def step() -> None:
        module.forward_backward(next(batches))
        module.update()

    return record(mxnet_hook, module, module, step)


class Computation:
    """What computes with a model, and has its parameters."""

    def __init__(self, model: Any, call: Callable[[Any], Any]) -> None:
        self.collect_params, self.call = model.collect_params, call

    def __call__(self, batch: Any) -> Any:
        return self.call(batch)


def weights_after(mxnet_hook: MxnetHook, *, watched: bool) -> list[bytes]:
    """Train with and without a window of kernels in the middle."""
    import mxnet as mx

    mx.random.seed(3)
    model = transformer_model(active=True)
    trainer, step = train(model, total, mx.nd.array([[1, 2, 3]]), "adam")
    if watched:
        record(mxnet_hook, model, trainer, step)
    else:
        for _ in range(1 + STEPS):
            step()
    step()
    return [p.data().asnumpy().tobytes() for p in model.collect_params().values()]


def bulks() -> int:
    """Count the bulks of operators that MXNet makes in one step, by its own profiler."""
    import mxnet as mx

    from tbdprof.suite.resnet50.on_mxnet import ResNet50

    model = initialized(ResNet50(), active=True)
    _, step = train(model, total, mx.nd.ones((1, 3, 32, 32)))
    step()
    mx.nd.waitall()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "profile.json")
        watched = {"profile_memory": True, "profile_api": False, "continuous_dump": False}
        mx.profiler.set_config(profile_symbolic=True, profile_imperative=True, filename=str(path), **watched)
        mx.profiler.set_state("run")
        mx.profiler.resume()
        step()
        mx.nd.waitall()
        mx.profiler.pause()
        mx.profiler.dump(finished=False)
        text = path.read_text()
        mx.profiler.set_config(profile_symbolic=False, profile_imperative=False, filename="", **watched)
    # Each is written as two pairs of events. The second file of a process is not valid JSON, but it is all there.
    return text.count('"name": "ImperativeBulk"') // 4


def memory_after(mxnet_hook: MxnetHook) -> dict[str, Table]:
    import mxnet as mx

    model = transformer_model(active=True)
    trainer, step = train(model, total, mx.nd.array([[1, 2, 3]]))
    mxnet_hook.watch([model], [trainer])
    step()
    mxnet_hook.start("memory")
    for _ in range(STEPS):
        step()
        mxnet_hook.mark_step()
    mxnet_hook.stop()
    return dict(mxnet_hook.drain(Strings()).tables)


def identities() -> dict[str, int]:
    import ctypes

    import scenarios
    from mxnet.gluon import HybridBlock

    from tbdprof.hooks.on_mxnet.session import layout

    library = layout.library()
    get = library["_ZN5mxnet6Engine3GetEv"]
    get.restype, get.argtypes = ctypes.c_size_t, []
    return {
        **scenarios.identities(),
        "graph": id(HybridBlock._call_cached_op),
        "cached": id(library.MXInvokeCachedOpEx),
        "operator": id(library.MXImperativeInvokeEx),
        "engine": ctypes.c_size_t.from_address(get()).value,
    }


def main(path: Path) -> None:
    mxnet_hook = hook()
    mxnet_hook.set_environment(Setting())
    before = identities()
    mxnet_hook.prepare(Setting(threads=1, seed=0))
    bulks_before = bulks()
    trainings = (
        resnet_hybrid,
        resnet_imperative,
        resnet_static,
        resnet_static_shape,
        convolutions,
        lstm,
        transformer_hybrid,
        transformer_imperative,
        before_the_first_block,
        one_layer_twice,
        evaluated_on_the_same_batch,
        pooled_and_flattened,
        numpy_products,
        sparse_products,
        sparse_in_a_graph,
        sparse_by_sparse,
        sparse_in_a_module,
    )
    windows = {}
    for each in trainings:
        windows[each.__name__] = each(mxnet_hook)
        gc.collect()  # a trainer and its parameters hold each other
    bulks_after = bulks()
    same = weights_after(mxnet_hook, watched=False) == weights_after(mxnet_hook, watched=True)
    memory = memory_after(mxnet_hook)
    reason = mxnet_hook.independent_total
    mxnet_hook.close()
    left = [each.name for each in Path(tempfile.gettempdir()).glob("tbdprof-*")]
    result = Result(windows, same, (bulks_before, bulks_after), memory, reason, before, identities(), left)
    path.write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    np.seterr(all="ignore")
    # Pickled under the name by which the tests import it.
    sys.path.insert(0, str(Path(__file__).parent))
    import kernel_scenarios

    kernel_scenarios.main(Path(sys.argv[1]))
