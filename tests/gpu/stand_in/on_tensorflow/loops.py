"""Trains small nets in TensorFlow on the card there is, in one process; prints what the profiler reports as JSON.

The argument is the name of the loop.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tbdprof.analysis.summary import summarize
from tbdprof.collect.gpu.nvml import NvmlSampler
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import KernelKind, Phase, SpanKind
from tbdprof.hooks import Setting, load
from tbdprof.hooks.on_tensorflow.out_of_memory import said
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.new_run import new_run
from tbdprof.loop.plan import Plan
from tbdprof.loop.profiler import LoopProfiler

BATCH, WORDS, LENGTH, WIDTH, HIDDEN, CLASSES = 32, 1000, 12, 64, 128, 10
PLAN = Plan(warmup=2, steps=2, windows=("clean", "memory", "kernels"))
PRODUCTS = ("sm90_stand_in_gemm", "gemm_fusion")  # kernels of libraries and of XLA's own
LARGE = (128, 1024, 1024)  # 512 MiB of float32
Json = dict[str, Any]
Step = Callable[[], Any]


def net() -> Any:
    import keras
    from keras import layers

    words = layers.Input((LENGTH,), dtype="int32")
    maps = layers.Embedding(WORDS, WIDTH, name="embedding")(words)
    maps = layers.LayerNormalization(name="norm")(
        maps + layers.MultiHeadAttention(4, WIDTH // 4, name="mha")(maps, maps)
    )
    maps = layers.Dense(HIDDEN, activation="relu", name="hidden")(layers.Flatten()(maps))
    return keras.Model(words, layers.Dense(CLASSES, name="classes")(maps))


def train_step(model: Any, optimizer: Any) -> Step:
    import tensorflow as tf

    words = tf.random.uniform((BATCH, LENGTH), 0, WORDS, tf.int32)
    labels = tf.constant([place % CLASSES for place in range(BATCH)])

    def step() -> Any:
        with tf.GradientTape() as tape:
            outputs = model(words, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


def observe(*, prepared: bool = True, policy: str = "float32") -> Json:
    """Return what the profiler reports of a loop on the card: followed from the first allocation on, or joined late."""
    hook = load("tensorflow")
    if prepared:
        hook.prepare(Setting("cuda", 2, "fp32", 0))
    import keras
    import tensorflow as tf

    if not prepared:
        tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("GPU")[0], enable=True)
    keras.mixed_precision.set_global_policy(policy)
    model, optimizer = net(), keras.optimizers.Adam(1e-3)
    step = train_step(model, optimizer)
    if prepared:
        step = tf.function(step)
    else:
        step()
        hook.attach()
    hook.watch([model], [optimizer])
    # The driver's account beside the memory windows' own, as every run on a card has it.
    instruments = Instruments({"memory": [NvmlSampler(0)]})
    with LoopProfiler(hook, new_run("net", "tensorflow"), PLAN, instruments=instruments) as profiler:
        while profiler.active:
            loss = step()
            profiler.step(BATCH)
    del loss
    return {**reported(profiler.recording), "sizes": sizes(model, optimizer), "kept": kept()}


def kept() -> Json:
    """Return TensorFlow's own figures of the card: what is in use, and the most there was."""
    import tensorflow as tf

    return dict(tf.config.experimental.get_memory_info("GPU:0"))


def sizes(model: Any, optimizer: Any) -> Json:
    return {"trained": count(model.trainable_variables), "state": count(optimizer.variables)}


def count(variables: Sequence[Any]) -> int:
    return sum(variable.value.shape.num_elements() * variable.value.dtype.size for variable in variables)


def reported(recording: Recording) -> Json:
    summary = summarize(recording)
    memory, device = summary.memory, summary.device_memory
    assert memory is not None
    assert device is not None
    window = recording.named("memory")[0]
    return {
        "run": [recording.run.device, recording.run.device_name, recording.run.watched_since],
        "flags": dict(recording.run.precision_flags),
        "missing": dict(recording.missing),
        "independent_total": recording.run.independent_total,
        "mismatches": memory.mismatches,
        "violations": memory.violations,
        "roles": {role.name: size for role, size in memory.roles_at_peak.items()},
        "largest": {role.name: size for role, size in memory.roles_max.items()},
        "rounding": memory.rounding_at_peak_bytes,
        "peak": memory.allocator_peak_bytes,
        "independent_peak": memory.independent_peak_bytes,
        "whole_run_peak": recording.run.whole_run_peak_bytes,
        "devices": sorted({recording.strings[int(each)] for each in window.table("allocation")["device"]}),
        "layers_of_memory": {layer.name: layer.size_bytes for layer in device.layers},
        "used": device.used_bytes,
        "unexplained": device.unexplained_bytes,
        "cache_at_end": device.cache_at_end_bytes,
        "flops_per_sample": None if summary.utilization is None else summary.utilization.flops_per_sample,
        **kernels(recording, recording.named("kernels")[0]),
    }


def kernels(recording: Recording, window: Window) -> Json:
    rows, spans = window.table("kernel"), window.table("span")
    asked = spans[rows["span"][rows["span"] >= 0]]
    products = [row for row in rows if recording.strings[int(row["name"])].startswith(PRODUCTS)]
    worked = Counter(recording.strings[int(spans[int(row["span"])]["name"])] for row in products if row["span"] >= 0)
    in_layers = spans[spans["kind"] == SpanKind.LAYER]
    return {
        "steps": len(window.table("step")),
        "kernels": {kind.name: int((rows["kind"] == kind).sum()) for kind in KernelKind},
        "in_no_span": int((rows["span"] < 0).sum()),
        "launched_late": int((rows["launch_ns"] > rows["start_ns"]).sum()),
        "unlaunched": int((rows["launch_ns"] < 0).sum()),
        "phases": sorted({Phase(int(each)).name for each in asked["phase"]}),
        "layers": sorted({recording.strings[int(row["name"])] for row in in_layers}),
        "products": dict(worked),
        "streams": len(set(rows["stream"].tolist())),
    }


def full() -> Json:
    """Return what is understood of TensorFlow's errors where the card is full."""
    load("tensorflow").prepare(Setting("cuda", 2, "fp32", 0))
    import numpy as np
    import tensorflow as tf

    here, kept = np.zeros(LARGE, np.float32), []

    @tf.function
    def function(images: Any) -> Any:
        return tf.reduce_sum(tf.sqrt(tf.fill([images, *LARGE[1:]], 1.0)))

    def eager() -> None:
        while True:
            kept.append(tf.fill(LARGE, 1.0))

    # Each waits for 10 s, in case memory is freed: the first, which could never fit, does so beside the others.
    with ThreadPoolExecutor(1) as aside:
        in_function = aside.submit(failed, lambda: function(tf.constant(LARGE[0] << 10)))
        in_eager, copied = failed(eager), failed(lambda: tf.constant(here))
    return {"said": [in_function.result(), in_eager, copied], "kept": len(kept)}


def failed(work: Step) -> str | None:
    import tensorflow as tf

    try:
        work()
    except (tf.errors.OpError, RuntimeError) as error:
        return said(error)
    return "nothing failed"


def prepared() -> Json:
    """Return what is reported of a function's steps, followed from the first allocation on."""
    return observe()


def joined() -> Json:
    """Return what is reported of eager steps in mixed precision, joined late, where TensorFlow's memory grows."""
    return observe(prepared=False, policy="mixed_float16")


def compiled() -> Json:
    """Return what is reported of steps that XLA compiled, as Keras has them compiled by itself where there is a GPU."""
    hook = load("tensorflow")
    hook.prepare(Setting("cuda", 2, "fp32", 0))
    import keras
    import tensorflow as tf

    layers = [keras.layers.Input((WIDTH,)), keras.layers.Dense(HIDDEN, name="hidden"), keras.layers.Dense(CLASSES)]
    model, optimizer = keras.Sequential(layers), keras.optimizers.SGD(0.1)
    images, labels = tf.ones((BATCH, WIDTH)), tf.zeros((BATCH,), tf.int32)

    @tf.function(jit_compile=True)
    def step() -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
        gradients = tape.gradient(losses, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return losses

    hook.watch([model], [optimizer])
    with LoopProfiler(hook, new_run("net", "tensorflow"), PLAN) as profiler:
        while profiler.active:
            step()
            profiler.step(BATCH)
    return {**reported(profiler.recording), "sizes": sizes(model, optimizer)}


LOOPS: dict[str, Callable[[], Json]] = {"prepared": prepared, "joined": joined, "compiled": compiled, "full": full}

if __name__ == "__main__":
    print(json.dumps(LOOPS[sys.argv[1]]()))
