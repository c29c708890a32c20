"""Trains a small net in TensorFlow in several ways, in one process; prints what memory windows saw as JSON."""

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import known_peaks

import tbdprof
from tbdprof.analysis.memory.accounting import account
from tbdprof.analysis.memory.blocks import NEVER
from tbdprof.analysis.summary import summarize
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Phase, Role, SpanKind
from tbdprof.hooks import Setting, load
from tbdprof.hooks.on_tensorflow.importing import quiet
from tbdprof.loop.new_run import new_run
from tbdprof.loop.plan import Plan
from tbdprof.loop.profiler import LoopProfiler

PLAN = Plan(warmup=2, steps=2, windows=("clean", "memory"))
BATCH, SIDE, CLASSES = 8, 16, 10
KEPT_FLOATS = 5000  # a tensor of these is planted where it does not belong
LATE_FLOATS, LATE_STEP = 700, 4  # a constant of a function that is first called in the clean window
Json = dict[str, Any]
Step = Callable[[], Any]


def net() -> Any:
    import keras
    from keras import layers

    return keras.Sequential(
        [
            layers.Input((SIDE, SIDE, 3)),
            layers.Conv2D(8, 3, name="conv"),
            layers.BatchNormalization(name="bn"),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(CLASSES, name="dense"),
        ],
        name="net",
    )


def batch() -> tuple[Any, Any]:
    import tensorflow as tf

    return tf.random.normal((BATCH, SIDE, SIDE, 3)), tf.constant([i % CLASSES for i in range(BATCH)])


def train_step(model: Any, optimizer: Any, images: Any, labels: Any, planted: Step | None = None) -> Step:
    import tensorflow as tf

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True)))
            if planted is not None:
                loss += planted()
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


def observe(
    make: Callable[[], tuple[Any, Any, Step, list[Any]]],
    *,
    prepared: bool,
    after: Callable[[], Callable[[], None]] | None = None,
) -> Json:
    """Return what the profiler found of a loop; `make` returns the model, the optimizer, the step and kept inputs."""
    hook = load("tensorflow")
    if prepared:
        hook.prepare(Setting("cpu", 2, "fp32", 0))
    else:
        hook.attach()
    model, optimizer, step, inputs = make()
    done = after() if after is not None else None
    hook.watch([model], [] if optimizer is None else [optimizer], inputs)
    profiler = LoopProfiler(hook, new_run("net", "tensorflow"), PLAN)
    with profiler:
        while profiler.active:
            loss = step()
            if done is not None:
                done()
            profiler.step(BATCH)
    del loss
    return {**facts_of(profiler.recording), "parameters": sizes(model)}


def sizes(model: Any) -> Json:
    return {"trained": count(model.trainable_variables), "buffers": count(model.non_trainable_variables)}


def count(variables: Any) -> int:
    return sum(variable.value.shape.num_elements() * variable.value.dtype.size for variable in variables)


def facts_of(recording: Recording) -> Json:
    memory = summarize(recording).memory
    assert memory is not None
    window = next(each for each in recording.windows if each.name == "memory")
    owners, ends = window.table("owner"), window.table("step")["last_sequence"]
    gradients = owners[(owners["role"] == Role.GRADIENT) & (owners["sequence"] > ends[0])]
    last = owners[(owners["role"] == Role.OPTIMIZER_STATE) & (owners["sequence"] > ends[-2])]
    spans = window.table("span")
    return {
        "mismatches": memory.mismatches,
        "violations": memory.violations,
        "roles": {role.name: size for role, size in memory.roles_at_peak.items()},
        "largest": {role.name: size for role, size in memory.roles_max.items()},
        "peak": memory.allocator_peak_bytes,
        "independent_peak": memory.independent_peak_bytes,
        "whole_run_peak": recording.run.whole_run_peak_bytes,
        "watched_since": recording.run.watched_since,
        "independent_total": recording.run.independent_total,
        "missing": dict(recording.missing),
        "gradients": {recording.strings[int(row["name"])]: int(row["bytes"]) for row in gradients},
        "gradient_bytes_a_step": int(gradients["bytes"].sum()) / (len(ends) - 1),
        "state": sum(int(row["bytes"]) for row in last),
        "optimizers": [[each.kind, dict(each.settings), list(each.parameters)] for each in recording.run.optimizers],
        "names": [each.name for each in recording.run.parameters],
        "layers": sorted({recording.strings[int(row["name"])] for row in spans[spans["kind"] == SpanKind.LAYER]}),
        "phases": sorted({Phase(int(each)).name for each in spans["phase"]}),
        "steps": len(ends),
        "planted": planted_roles(recording),
        "inputs": sorted({recording.strings[int(row["name"])] for row in owners[owners["role"] == Role.INPUT]}),
    }


def planted_roles(recording: Recording) -> Json:
    """Return the roles of the blocks as large as what is planted: of those left in the end, and of those that went."""
    window = next(each for each in recording.windows if each.name == "memory")
    worked = account(recording, window)
    mine = worked.blocks.size_bytes == 4 * KEPT_FLOATS
    left = worked.blocks.end == NEVER
    roles = [[Role(int(each)).name for each in worked.roles[mine & chosen]] for chosen in (left, ~left)]
    return {"left": roles[0], "gone": sorted(set(roles[1]))}


def with_optimizer(make: Callable[[], Any], *, is_eager: bool = False, planted: Step | None = None) -> Any:
    def build() -> tuple[Any, Any, Step, list[Any]]:
        import tensorflow as tf

        model, optimizer, (images, labels) = net(), make(), batch()
        step = train_step(model, optimizer, images, labels, planted)
        return model, optimizer, step if is_eager else tf.function(step), [images, labels]

    return build


def mirrored() -> tuple[Any, Any, Step, list[Any]]:
    """Two replicas, each with a copy of every weight."""
    import keras
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy([each.name for each in tf.config.list_logical_devices("CPU")])
    with strategy.scope():
        model, optimizer = net(), keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)
    images, labels = batch()
    step = train_step(model, optimizer, images, labels)
    return model, optimizer, tf.function(lambda: strategy.run(step)), [images, labels]


def fit(policy: str = "float32", *, jit_compile: bool = False) -> Json:
    """Return what the callback reported of a Keras loop with the profiler that encloses it."""
    import keras
    import numpy as np

    keras.config.set_dtype_policy(policy)
    model = net()
    keras.config.set_dtype_policy("float32")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, jit_compile=jit_compile)
    images = np.random.default_rng(0).random((20 * BATCH, SIDE, SIDE, 3), np.float32)

    hook = load("tensorflow")
    hook.attach()
    hook.watch([model], [])
    profiler = LoopProfiler(hook, new_run("net", "tensorflow"), PLAN)
    with profiler:
        model.fit(
            images,
            np.arange(20 * BATCH) % CLASSES,
            batch_size=BATCH,
            verbose=0,
            callbacks=[tbdprof.keras.Callback(profiler)],
        )
    run = profiler.recording.run
    told = [run.batch_size, run.batch_size_from]
    return {**facts_of(profiler.recording), "parameters": sizes(model), "batch": told}


def calls_a_function_late() -> Callable[[], None]:
    """Return what is to be done after each step; once it calls a function whose constants no Python code holds."""
    import numpy as np
    import tensorflow as tf

    steps: list[None] = []
    add = tf.function(lambda number: number + np.arange(LATE_FLOATS, dtype=np.float32))

    def after() -> None:
        steps.append(None)
        if len(steps) == LATE_STEP:
            add(tf.constant(1.0))

    return after


def raised() -> Json:
    """Return which of two profilers go on after each of two fits that raised, and how the recordings ended."""
    import keras
    import numpy as np

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    batches = np.zeros((6, 4), np.float32), np.zeros((6, 1), np.float32)

    class Raising(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            if batch == 2:
                raise KeyError(batch)

    def fit(callback: tbdprof.keras.Callback) -> KeyError | None:
        try:
            model.fit(*batches, batch_size=1, verbose=0, callbacks=[callback, Raising()])
        except KeyError as error:
            return error
        return None

    def goes_on(callback: tbdprof.keras.Callback) -> bool:
        return callback.profiler is not None and callback.profiler.active

    first, second = tbdprof.keras.Callback(prints=False), tbdprof.keras.Callback(prints=False)
    kept = fit(first)
    active = [goes_on(first)]
    fit(second)
    active += [goes_on(first), goes_on(second)]
    profilers = [each.profiler for each in (first, second) if each.profiler is not None]
    ends = [each.recording.run.ended_by for each in profilers]
    steps = [sum(len(window.table("step")) for window in each.recording.windows) for each in profilers]
    return {"raised": repr(kept), "active": active, "ended_by": ends, "steps": steps, "restored": is_as_it_was()}


def outside_windows() -> Json:
    """Return how often a training step calls Python code of tbdprof, and how many calls of layers tracing notes."""
    import tensorflow as tf

    hook = load("tensorflow")
    hook.attach()
    model, optimizer, step, _ = with_optimizer(lambda: keras_sgd(), is_eager=True)()
    traced = tf.function(step)
    hook.watch([model], [optimizer])
    joined = hook._joined
    assert joined is not None
    calls: Json = {}
    try:
        step()
        traced()
        calls["eager"], calls["traced"] = own_calls(step), own_calls(traced)
        hook.start("memory")
        calls["eager in a window"] = own_calls(step)
        hook.stop()
        calls["eager after it"], calls["traced after it"] = own_calls(step), own_calls(traced)
        joined.watch.on_update(lambda optimizer: None)
        calls["traced, counting steps"] = own_calls(traced)
        graph = tf.function(model).get_concrete_function(batch()[0]).graph
        notes = joined.graphs.tracing.notes(graph)
        traces = traced.experimental_get_tracing_count()
    finally:
        hook.close()
    return {
        "calls": calls,
        "noted": len(notes.layers) if notes else 0,
        "layers": 1 + len(model.layers),
        "traces": traces,
    }


def keras_sgd() -> Any:
    import keras

    return keras.optimizers.SGD(0.1)


def own_calls(step: Step) -> list[str]:
    """Return the functions of tbdprof that a training step calls."""
    found: list[str] = []

    def called(frame: FrameType, event: str, _: object) -> None:
        if (
            event == "call"
            and "on_tensorflow" in frame.f_code.co_filename
            and "scenarios" not in frame.f_code.co_filename
        ):
            found.append(getattr(frame.f_code, "co_qualname", frame.f_code.co_name))  # Python 3.10 has the name alone

    sys.setprofile(called)
    try:
        step()
    finally:
        sys.setprofile(None)
    return found


def is_as_it_was() -> bool:
    """Return whether nothing of TensorFlow's or Keras's is replaced."""
    import keras
    import tensorflow as tf
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
    from tensorflow.python.framework import func_graph
    from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

    replaced = [
        func_graph.func_graph_from_py_func,
        BaseResourceVariable.__init__,
        tf.GradientTape.gradient,
        tf.GradientTape.__enter__,
        tf.GradientTape.__exit__,
        keras.Layer.__call__,
        keras.optimizers.Optimizer.apply,
        Function.__call__,
    ]
    return not any("on_tensorflow" in each.__code__.co_filename for each in replaced)


def two_devices() -> None:
    """Make TensorFlow see two CPUs; this must be done before it begins."""
    load("tensorflow").set_environment(Setting())
    with quiet():
        import tensorflow as tf

        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)


def main() -> None:
    known_peaks.use()  # two of the loops have kernels windows
    momentum = "keras.optimizers.SGD(0.1, momentum=0.9)"
    results: Json = {}
    two_devices()

    def make(text: str) -> Callable[[], Any]:
        def built() -> Any:
            import keras

            return eval(text, {"keras": keras})

        return built

    results["momentum"] = observe(with_optimizer(make(momentum)), prepared=True, after=calls_a_function_late)
    results["restored"] = is_as_it_was()
    results["plain"] = observe(with_optimizer(make("keras.optimizers.SGD(0.1)")), prepared=False)
    results["adam"] = observe(with_optimizer(make("keras.optimizers.Adam(amsgrad=True)")), prepared=False)
    results["eager"] = observe(with_optimizer(make(momentum), is_eager=True), prepared=False)
    results["mirrored"] = observe(mirrored, prepared=False)
    results["fit"] = fit()
    results["compiled"] = fit(jit_compile=True)
    results["mixed"] = fit("mixed_bfloat16")
    results["raised"] = raised()
    results["outside windows"] = outside_windows()
    results.update(planted(make(momentum)))
    json.dump(results, sys.stdout)


def planted(optimizer: Callable[[], Any]) -> Json:
    import tensorflow as tf

    cache: list[Any] = []

    def feature_map() -> Any:
        # A square's gradient needs what was squared; the sum of random numbers keeps it from being folded away.
        return tf.reduce_sum(tf.square(tf.random.normal((KEPT_FLOATS,)) + tf.reduce_sum(weight[0]))) * 1e-3

    weight: list[Any] = []

    def with_map() -> Any:
        model, made, (images, labels) = net(), optimizer(), batch()
        weight.append(model.trainable_variables[0])
        return model, made, tf.function(train_step(model, made, images, labels, feature_map)), [images, labels]

    def lookup() -> Any:
        import keras

        parts = [keras.layers.Input((6,), dtype="int32"), keras.layers.Embedding(400, 16), keras.layers.Flatten()]
        model, made = keras.Sequential([*parts, keras.layers.Dense(CLASSES)]), keras.optimizers.SGD(0.1)
        words, (_, labels) = tf.ones((BATCH, 6), tf.int32), batch()
        return model, made, tf.function(train_step(model, made, words, labels)), [words, labels]

    def broadcast() -> Any:
        import keras

        class Product(keras.layers.Layer):
            def build(self, shape: Any) -> None:
                self.kernel = self.add_weight(shape=(shape[-1], CLASSES), name="kernel")

            def call(self, words: Any) -> Any:
                return tf.matmul(words, self.kernel)  # over a batch: the gradient is a sum over its one sample

        model, made = keras.Sequential([keras.layers.Input((6, SIDE)), Product(name="product")]), optimizer()
        words, labels = tf.random.normal((1, 6, SIDE)), tf.zeros((1, 6), tf.int32)
        return model, made, tf.function(train_step(model, made, words, labels)), [words, labels]

    eager = with_optimizer(optimizer, is_eager=True)
    return {
        "broadcast": observe(broadcast, prepared=False),
        "lookup": observe(lookup, prepared=False),
        "map": observe(with_map, prepared=False),
        "cache": observe(eager, prepared=False, after=lambda: lambda: cache.append(tf.random.normal((KEPT_FLOATS,)))),
    }


if __name__ == "__main__":
    main()
