"""Small nets trained in TensorFlow under kernels windows; run as a program it prints what the windows found, as JSON.

One process for all of them: TensorFlow takes seconds to start, and cannot share one with other tests' settings.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from tensorflow.python.eager import backprop

from tbdprof.analysis.kernels.flops import count
from tbdprof.facts.records import KernelKind, Operation, Phase, SpanKind, Strings
from tbdprof.facts.work import parse
from tbdprof.hooks.on_tensorflow.flops import counted_eager
from tbdprof.hooks.on_tensorflow.flops.counted_graphs import CountedGraphs
from tbdprof.hooks.on_tensorflow.kernels.window import KernelsWindow
from tbdprof.hooks.on_tensorflow.operators import eager
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.operators.runs import Runs
from tbdprof.hooks.on_tensorflow.session.events import CallEvent, DeviceEvent, MarkEvent, OpEvent, Trace
from tbdprof.hooks.on_tensorflow.session.session import Session
from tbdprof.hooks.on_tensorflow.watch.watch import Watch

BATCH, SIDE, CLASSES = 4, 8, 5
Step = Callable[[], object]


class Block(layers.Layer):
    """Two convolutions around which a shortcut leads, named by attributes."""

    def __init__(self, width: int) -> None:
        super().__init__(name="block")
        self.conv1 = layers.Conv2D(width, 3, padding="same", activation="relu", name="a")
        self.conv2 = layers.Conv2D(width, 3, padding="same", use_bias=False, name="b")
        self.norm = layers.BatchNormalization(name="c")

    def call(self, maps: tf.Tensor, training: bool = False) -> tf.Tensor:
        return tf.nn.relu(self.norm(self.conv2(self.conv1(maps)), training=training) + maps)


class Net(keras.Model):
    """Images to scores, as `reference` in the tests has it in torch."""

    def __init__(self) -> None:
        super().__init__(name="net")
        self.stem = layers.Conv2D(6, 3, strides=2, name="stem")
        self.block = Block(6)
        self.up = layers.Conv2DTranspose(3, 3, 2, name="up")
        self.depthwise = layers.DepthwiseConv2D(3, depth_multiplier=2, name="dw")
        self.flatten = layers.Flatten(name="flat")
        self.heads = [layers.Dense(7, activation="relu", name="x"), layers.Dense(CLASSES, name="y")]

    def call(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        maps = self.depthwise(self.up(self.block(self.stem(images), training=training)))
        hidden = self.flatten(maps)
        for head in self.heads:
            hidden = head(hidden)
        return hidden


class Affine(tf.Module):
    """A module that is not Keras', without name scopes."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones((inputs, outputs)), name="weight")

    def __call__(self, given: tf.Tensor) -> tf.Tensor:
        return tf.matmul(given, self.weight)


class Two(tf.Module):
    """Two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = Affine(6, 7), Affine(7, 5)

    def __call__(self, given: tf.Tensor) -> tf.Tensor:
        return self.last(self.first(given))


def net_step(**options: Any) -> tuple[Any, Any, Step]:
    keras.utils.set_random_seed(0)
    net = Net()
    images, labels = tf.random.normal((BATCH, SIDE, SIDE, 3)), tf.constant([0, 1, 2, 3])
    net(images)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(net.trainable_variables)
    return net, optimizer, trained(net, optimizer, images, labels, **options)


def trained(model: Any, optimizer: Any, inputs: Any, labels: Any, **options: Any) -> Step:
    @tf.function(**options)
    def step(inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            scores = model(inputs, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
        weights = model.trainable_variables
        gradients = tape.gradient(loss, weights)
        optimizer.apply([each + 1e-4 * weight for each, weight in zip(gradients, weights, strict=True)], weights)
        return loss

    return lambda: step(inputs, labels)


def recorded(
    model: Any, optimizer: Any, step: Step, *, noted: bool = True, found_late: bool = False, steps: int = 1
) -> dict[str, Any]:
    """What a kernels window reports of some steps.

    `noted`: the functions are traced while they are watched. `found_late`: the model becomes known after that.
    """
    graphs = Graphs()
    watch = Watch(graphs.watch)
    if found_late:
        graphs.begin()
        step()
    watch.watched.add_model(model)
    if optimizer is not None:
        watch.watched.add_optimizer(optimizer)
    if not noted:
        step()
    graphs.begin()
    watch.name_layers()
    step()
    try:
        window = KernelsWindow(watch, graphs)
        for _ in range(steps):
            step()
            window.mark_step()
        window.stop()
    finally:
        watch.close()
        graphs.end()
    strings = Strings()
    drained = window.drain(strings)
    return {"rows": rows(drained.tables["span"], strings), "missing": dict(drained.missing), "marks": drained.marks}


def rows(spans: Any, strings: Strings) -> list[list[Any]]:
    """Name, phase, operation, layer, FLOPs of products and of all else, shapes, whether it lies within an operator."""
    by_id, found = {int(row["id"]): row for row in spans}, []
    for row in spans:
        if row["kind"] != SpanKind.OPERATOR:
            continue
        around = by_id.get(int(row["parent"]))
        layer = strings[around["name"]] if around is not None and around["kind"] == SpanKind.LAYER else None
        if layer is not None and around is not None:
            around = by_id.get(int(around["parent"]))
        flops = count(parse(strings[row["work"]])) if row["work"] >= 0 else None
        name, shapes = strings[row["name"]], strings[row["shapes"]]
        counts = [None, None] if flops is None else [flops.model, flops.elementwise]
        phase, operation = Phase(row["phase"]).name, Operation(row["operation"]).name
        found.append([name, phase, operation, layer, *counts, shapes, around is not None])
    return found


def in_a_function() -> Any:
    return recorded(*net_step(), steps=2)


def traced_before() -> Any:
    return recorded(*net_step(), noted=False)


def in_eager_mode() -> Any:
    tf.config.run_functions_eagerly(True)
    try:
        return recorded(*net_step(), steps=2)
    finally:
        tf.config.run_functions_eagerly(False)


def compiled() -> Any:
    return recorded(*net_step(jit_compile=True))


@tf.function(jit_compile=True)
def product(given: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    return tf.matmul(given, weight)


class Shared(layers.Layer):
    """A layer that calls a compiled function which others call, too."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], shape[-1]), name="kernel")

    def call(self, given: tf.Tensor) -> tf.Tensor:
        return product(given, tf.convert_to_tensor(self.kernel))


def regions() -> Any:
    """Compiled regions in a function that is not compiled: Keras has grouped convolutions compiled on a CPU."""
    given = keras.Input((10, 10, 6))
    maps = layers.Conv2D(6, 3, groups=2, use_bias=False, name="grouped")(
        layers.Conv2D(6, 1, use_bias=False, name="mixed")(given)
    )
    hidden = layers.Dense(8, name="narrow")(layers.Flatten()(maps))
    model = keras.Model(given, layers.Dense(CLASSES, name="out")(Shared(name="two")(Shared(name="one")(hidden))))
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    return recorded(model, optimizer, trained(model, optimizer, tf.ones((BATCH, 10, 10, 6)), tf.constant([0, 1, 2, 3])))


def root() -> Any:
    """A model that computes something itself, by Adam."""
    given = keras.Input((6,))
    model = keras.Model(given, layers.Dense(CLASSES, name="out")(given) * 2.0 + 1.0)
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build(model.trainable_variables)
    return recorded(model, optimizer, trained(model, optimizer, tf.ones((BATCH, 6)), tf.constant([0, 1, 2, 3])))


def alone() -> Any:
    """A model of one layer: all that the model does, the layer does."""
    model = keras.Sequential([layers.Input((6,)), layers.Dense(CLASSES, name="out")])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    return recorded(model, optimizer, trained(model, optimizer, tf.ones((BATCH, 6)), tf.constant([0, 1, 2, 3])))


def root_eagerly() -> Any:
    tf.config.run_functions_eagerly(True)
    try:
        return root()
    finally:
        tf.config.run_functions_eagerly(False)


def of_modules() -> Any:
    two, given = Two(), tf.ones((3, 6))

    @tf.function
    def step(given: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(two(given) ** 2)
        for gradient, variable in zip(
            tape.gradient(loss, two.trainable_variables), two.trainable_variables, strict=True
        ):
            variable.assign_sub(gradient)

    return recorded(two, None, lambda: step(given))


class Halves(keras.Model):
    """Two submodels with the names that Keras gives, which a step calls without their model."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.Sequential([layers.Input((6,)), layers.Dense(7, activation="relu"), layers.Dense(3)])
        self.decoder = keras.Sequential([layers.Input((3,)), layers.Dense(8), layers.Dense(6)])

    def call(self, given: tf.Tensor) -> tf.Tensor:
        return self.decoder(self.encoder(given))


def of_halves(**how: bool) -> Any:
    keras.utils.clear_session()
    model, given = Halves(), tf.ones((BATCH, 6))
    optimizers = [keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.1)]

    @tf.function
    def step(given: tf.Tensor) -> None:
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_sum((model.decoder(model.encoder(given)) - given) ** 2)
        for optimizer, part in zip(optimizers, (model.encoder, model.decoder), strict=True):
            optimizer.apply(tape.gradient(loss, part.trainable_variables), part.trainable_variables)

    return recorded(model, optimizers[0], lambda: step(given), **how)


def two_replicas() -> Any:
    """A strategy without collective operators, of which a process has one group alone."""
    devices = [each.name for each in tf.config.list_logical_devices("CPU")]
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())


def of_replicas(take: Callable[[Any], Any] = tf.function, **how: bool) -> Any:
    """Two replicas of one device each; each takes its half of the batch through both layers."""
    keras.utils.clear_session()
    strategy = two_replicas()
    with strategy.scope():
        model = keras.Sequential([layers.Input((6,)), layers.Dense(7, activation="relu"), layers.Dense(CLASSES)])
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    data = tf.data.Dataset.from_tensors((tf.ones((2 * BATCH, 6)), tf.zeros((2 * BATCH,), tf.int32))).unbatch()
    batches = iter(strategy.experimental_distribute_dataset(data.repeat().batch(2 * BATCH, drop_remainder=True)))

    def of_one(inputs: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            scores = model(inputs, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    step = take(lambda batch: strategy.run(of_one, batch))
    return recorded(model, optimizer, lambda: step(next(batches)), **how)


def taped(**options: Any) -> Any:
    """A function whose gradient is taken in eager mode: TensorFlow makes two functions of it."""
    keras.utils.clear_session()
    model = keras.Sequential([layers.Input((6,)), layers.Dense(7, activation="relu"), layers.Dense(CLASSES)])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    call, given = tf.function(lambda given: model(given), **options), tf.ones((BATCH, 6))  # a name with signs

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(call(given) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    return recorded(model, optimizer, step)


def grouped_eagerly() -> Any:
    """Keras compiles a function for each call of a grouped convolution on a CPU, also in eager mode."""
    model = keras.Sequential([layers.Input((9, 9, 4)), layers.Conv2D(6, 3, groups=2, use_bias=False, name="grouped")])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(tf.ones((BATCH, 9, 9, 4))) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    return recorded(model, optimizer, step)


def steps_counted() -> dict[str, list[int]]:
    """How often each optimizer is said to have stepped, in loops of three steps of each kind."""
    watch, stepped = Watch(lambda *_: None), list[object]()
    watch.on_update(stepped.append)
    strategy = two_replicas()
    with strategy.scope():
        weight = keras.Variable(np.ones((2, 2), "f4"), name="weight")
    optimizers: list[Any] = []

    class Often(keras.Model):
        """One optimizer steps twice in each training step, as a critic's does."""

        def __init__(self) -> None:
            super().__init__()
            self.part = layers.Dense(1)
            self.part.build((None, 2))

        def train_step(self, data: tf.Tensor) -> dict[str, tf.Tensor]:
            for optimizer in (*optimizers, optimizers[0]):
                variables = self.part.trainable_variables
                optimizer.apply([tf.ones_like(each) for each in variables], variables)
            return {"loss": tf.reduce_sum(data)}

    def counted(take: Step) -> list[int]:
        stepped.clear()
        take()
        return [sum(each is optimizer for each in stepped) for optimizer in optimizers]

    def fit(**options: Any) -> list[int]:
        optimizers[:] = [keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.2)]
        model = Often()
        model.compile(**options)
        return counted(lambda: model.fit(np.ones((6, 2), "f4"), batch_size=2, verbose=0))

    def replicated(take: Callable[[Any], Any]) -> list[int]:
        ours = keras.optimizers.SGD(0.1)
        with strategy.scope():
            ours.build([weight])
        optimizers[:] = [ours]
        one = take(lambda: strategy.run(lambda: ours.apply([tf.ones((2, 2))], [weight])))
        return counted(lambda: [one() for _ in range(3)])

    try:
        return {
            "fit": fit(),
            "fit_eagerly": fit(run_eagerly=True),
            "replicas": replicated(tf.function),
            "replicas_eagerly": replicated(lambda step: step),
        }
    finally:
        watch.close()


def of_a_loop() -> Any:
    model = keras.Sequential([layers.Input((6, 8)), layers.LSTM(16, name="rnn"), layers.Dense(CLASSES, name="out")])
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build(model.trainable_variables)
    return recorded(model, optimizer, trained(model, optimizer, tf.ones((BATCH, 6, 8)), tf.constant([0, 1, 2, 3])))


class Again(keras.Model):
    """The first layer is computed again in the backward pass; the second is a recurrent one, in a loop."""

    def __init__(self) -> None:
        super().__init__(name="again")
        self.first, self.last = layers.Dense(6, activation="tanh", name="first"), layers.Dense(CLASSES, name="last")
        self.cells = layers.SimpleRNN(3, name="cells")

    def call(self, given: tf.Tensor, training: bool = False) -> tf.Tensor:
        hidden = tf.recompute_grad(lambda x: self.first(x))(given)
        return self.last(self.cells(hidden))


def recomputed() -> Any:
    model, given = Again(), tf.ones((BATCH, 7, 8))
    model(given)
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    return recorded(model, optimizer, trained(model, optimizer, given, tf.constant([0, 1, 2, 3])))


def fitted() -> Any:
    """Ten images in batches of four: the last is smaller, and the function is traced for any."""
    model = keras.Sequential([layers.Input((6,)), layers.Dense(7, name="x"), layers.Dense(CLASSES, name="y")])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    inputs, labels = np.ones((10, 6), "f4"), np.zeros(10, "i4")
    return recorded(model, model.optimizer, lambda: model.fit(inputs, labels, batch_size=4, verbose=0))


def penalized() -> dict[str, Any]:
    """A gradient of a gradient: what each operator means, by the names of the graph."""
    critic = keras.Sequential(
        [
            layers.Input((8, 8, 3)),
            layers.Conv2D(4, 5, 2, "same", name="conv"),
            layers.Flatten(),
            layers.Dense(1, name="out"),
        ]
    )

    @tf.function
    def step(real: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(real)
                scores = tf.math.square(critic(real))
            slopes = inner.gradient(scores, real)
            loss = tf.reduce_sum(scores) + tf.reduce_sum(slopes**2)
        return tape.gradient(loss, critic.trainable_variables)

    return meanings(critic, lambda: step(tf.ones((2, 8, 8, 3))))


def gradients(*, noted: bool) -> dict[str, Any]:
    net, _, step = net_step()
    return meanings(net, step, noted=noted)


def meanings(model: Any, step: Step, *, noted: bool = True) -> dict[str, Any]:
    """For each node that ran: phase, layer, parameters whose gradient it puts out, shape of the first of these."""
    if not noted:
        step()
    graphs = Graphs()
    graphs.watch("", model)
    graphs.begin()
    step()
    graphs.end()
    session = Session()
    session.start()
    step()
    trace = session.stop()
    runs, counted, nodes = Runs(trace, graphs), CountedGraphs(graphs), dict[str, Any]()
    for op in (each for each in trace.ops if not each.is_eager):
        node = counted.find(op.node, op.op, runs.function(op))
        assert node is not None, op
        flops = count(node.work) if node.work is not None else None
        products = 0 if flops is None else flops.model
        nodes[op.node] = [node.phase.name, node.layer, list(node.gradients), node.adds_to, products]
    return {"nodes": nodes, "parameters": [each.path for each in model.trainable_variables]}


def put_back() -> dict[str, bool]:
    """Whether everything is as it was, and whether training was the same, with and without notes being taken."""
    kinds = (tf.GradientTape, keras.optimizers.Optimizer, keras.layers.Layer, Two)
    before = [dict(vars(kind)) for kind in kinds]
    plain = weights_after(watched=False)
    again = weights_after(watched=True)
    graphs = Graphs()
    graphs.watch("", Two())
    graphs.begin()
    idle = [dict(vars(kind)) for kind in kinds] == before
    traced: list[bool] = []
    tf.function(lambda: traced.append([dict(vars(kind)) for kind in kinds] != before)).get_concrete_function()
    graphs.end()
    return {
        "idle": idle,
        "changed_while_traced": traced[0],
        "as_before": [dict(vars(kind)) for kind in kinds] == before,
        "same_bits": all(np.array_equal(one, other) for one, other in zip(plain, again, strict=True)),
        "gradients_still_work": float(backprop.GradientTape is tf.GradientTape and slope()) == 6.0,
    }


def weights_after(*, watched: bool) -> list[Any]:
    net, _, step = net_step()
    graphs = Graphs()
    graphs.watch("", net)
    if watched:
        graphs.begin()
    for _ in range(3):
        step()
    graphs.end()
    return [np.asarray(each) for each in net.trainable_variables]


def slope() -> Any:
    with tf.GradientTape() as tape:
        three = tf.constant(3.0)
        tape.watch(three)
        squared = three * three
    return tape.gradient(squared, three)


def planted() -> dict[str, Any]:
    """An event nobody asked for among those of eager mode: nothing of its type may be matched by order."""
    graphs = Graphs()
    log = eager.Log(graphs.tracing, lambda _name: None)
    tf.matmul(tf.ones((2, 3)), tf.ones((3, 4)))
    tf.nn.relu(tf.ones((2, 3)))
    log.close()
    ran = [OpEvent(1, each.type, each.type, place, place + 1, is_eager=True) for place, each in enumerate(log.asked)]
    missing: dict[str, str] = {}
    happened = [*ran, OpEvent(1, "MatMul", "MatMul", 99, 100, is_eager=True)]
    trace = Trace(ops=happened, marks=[MarkEvent("begin", 1, 0)])
    nodes = eager.of_events(trace, "begin", log.asked, missing, counted_eager.node_of)
    works = [(each.op, nodes[id(each)].work is not None) for each in ran]
    return {"works": works, "missing": missing}


def on_a_gpu() -> list[list[Any]]:
    """Kernels planted into the trace of a real step: launched within its products, or known by their nodes' names."""
    model, optimizer, step = net_step()
    graphs = Graphs()
    watch = Watch(graphs.watch)
    watch.watched.add_model(model)
    watch.watched.add_optimizer(optimizer)
    graphs.begin()
    watch.name_layers()
    step()
    window = KernelsWindow(watch, graphs)
    step()
    window.mark_step()
    window.stop()
    watch.close()
    graphs.end()
    assert window._trace is not None
    plant(window._trace)
    strings = Strings()
    tables = window.drain(strings).tables
    spans = {int(row["id"]): row for row in tables["span"]}
    found = []
    for row in tables["kernel"]:
        operator = spans[int(row["span"])]
        layer = spans[int(operator["parent"])]
        work = parse(strings[operator["work"]])
        texts = [strings[row["name"]], strings[operator["name"]], strings[layer["name"]]]
        found.append([*texts, Phase(operator["phase"]).name, work is not None, int(row["launch_ns"]) >= 0])
    return found


def plant(trace: Trace) -> None:
    """Have a GPU execute a kernel, named by the operator's type, for each product, after all of the step."""
    products = [op for op in trace.ops if "conv2d" in op.op.lower() or "MatMul" in op.op]
    end_ns = max(op.end_ns for op in trace.ops)
    for number, op in enumerate(products, 1):
        begins = end_ns + 100 * number
        trace.activities.append(
            DeviceEvent(KernelKind.KERNEL, op.op, "cuda:0", 13, begins, begins + 50, number, node=op.node)
        )
        if number % 2:
            launched = (op.start_ns + op.end_ns) // 2
            trace.calls[number] = CallEvent("cuLaunchKernel", op.thread, launched, launched + 1, number)


SCENARIOS: dict[str, Callable[[], Any]] = {
    "on_a_gpu": on_a_gpu,
    "function": in_a_function,
    "before": traced_before,
    "eager": in_eager_mode,
    "compiled": compiled,
    "regions": regions,
    "root": root,
    "root_eagerly": root_eagerly,
    "alone": alone,
    "modules": of_modules,
    "halves": of_halves,
    "halves_before": lambda: of_halves(noted=False),
    "halves_found_late": lambda: of_halves(found_late=True),
    "replicas": of_replicas,
    "replicas_before": lambda: of_replicas(noted=False),
    "replicas_eagerly": lambda: of_replicas(lambda step: step),
    "taped": taped,
    "taped_compiled": lambda: taped(jit_compile=True),
    "grouped_eagerly": grouped_eagerly,
    "loop": of_a_loop,
    "recomputed": recomputed,
    "fitted": fitted,
    "penalized": penalized,
    "gradients": lambda: gradients(noted=True),
    "gradients_before": lambda: gradients(noted=False),
    "put_back": put_back,
    "planted": planted,
    "steps": steps_counted,
}

if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    wanted = sys.argv[1:] or list(SCENARIOS)
    print(json.dumps({name: SCENARIOS[name]() for name in wanted}))
