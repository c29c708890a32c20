"""Trains one model of the suite in one framework for a few steps, observed or not; prints what came of it as JSON.

python cell.py MODEL FRAMEWORK HOW OPTIONS, HOW being: observed (across all windows), unobserved, or nudged (observed,
and one weight moved by one unit in the last place); OPTIONS is JSON: the model's own, batch_size,
and watched_steps, of the memory and the kernels window.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import short_sequences

from tbdprof import suite
from tbdprof.analysis.summary import summarize
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Peaks, Role
from tbdprof.hooks import Setting, load
from tbdprof.loop.new_run import listed, new_run
from tbdprof.loop.plan import Plan
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.report import json_report
from tbdprof.suite.workload import Concurrent

MODEL, FRAMEWORK, HOW = sys.argv[1:4]
OPTIONS: dict[str, Any] = json.loads(sys.argv[4])
WATCHED: int | None = OPTIONS.pop("watched_steps", None)
PERIOD = suite.find(MODEL).period
# All windows in turn for one model; for the others the two that watch, which is what differs between models.
WINDOWS = ("clean", "memory", "clean", "kernels", "clean") if MODEL == "resnet50" else ("memory", "kernels")
PLAN = Plan(
    warmup=1,
    steps=1,
    memory_steps=WATCHED or 2,
    kernel_steps=WATCHED or 1 + PERIOD,
    windows=WINDOWS,
)
WATCHED_STEPS = PLAN.watched("memory")[0] + PLAN.watched("kernels")[0]
STEPS = 1 + WINDOWS.count("clean") * PLAN.block_steps + WATCHED_STEPS
SEED, THREADS = 3, 1
Named = Iterator[tuple[str, np.ndarray]]


def main() -> None:
    """Train, and print the digests of what was trained and, where it was observed, the report."""
    vars(np).setdefault("bool", bool)
    spec = suite.find(MODEL)
    config = suite.configure(spec, seed=SEED, batch_size=OPTIONS.pop("batch_size", None), options=OPTIONS)
    if HOW == "unobserved":
        SEEDED[FRAMEWORK]()
        workload = suite.build(MODEL, FRAMEWORK, config)
        for _ in range(STEPS):
            workload.step()
        end(workload)
        print(json.dumps({"left": left(workload)}))
        return
    hook = load(FRAMEWORK)
    hook.prepare(Setting("cpu", THREADS, config.precision, SEED))
    # They have their own tests, and measuring them takes longer than some of the models.
    peaks = Peaks({}, None, {config.precision: "not measured"})
    units = {"unit": spec.unit, "sample_unit": spec.sample_unit}
    run = new_run(MODEL, FRAMEWORK, **units, batch_size=config.batch_size, seed=SEED, peaks=peaks)
    workload = suite.build(MODEL, FRAMEWORK, config)
    profiler = LoopProfiler(hook, run, PLAN, pause=lambda: pause(workload))
    if HOW == "nudged":
        nudge(workload)
    hook.watch(listed(workload.model), listed(workload.optimizer), listed(workload.inputs))
    taken = 0
    with profiler:
        while profiler.active:
            profiler.step(workload.step())
            taken += 1
    assert taken == STEPS
    end(workload)
    facts = {
        "left": left(workload),
        "report": json.loads(json_report.render(summarize(profiler.recording))),
        "windows": [[window.name, window.state] for window in profiler.recording.windows],
        "parameters": sum(int(np.prod(each.shape)) for each in profiler.recording.run.parameters if each.trainable),
        "held_bytes": sum(
            int(np.prod(each.shape)) * each.item_bytes
            for each in profiler.recording.run.parameters
            if not each.is_buffer
        ),
    }
    facts |= owned(profiler.recording)
    facts["state_bytes"] = sum(value.nbytes for value in STATES[FRAMEWORK](workload))
    hook.close()
    print(json.dumps(facts))


def pause(workload: Any) -> None:
    """Let a workload's own threads end the step they are in."""
    if isinstance(workload, Concurrent):
        workload.pause()


def end(workload: Any) -> None:
    """End a workload's own threads."""
    if isinstance(workload, Concurrent):
        workload.close()


def owned(recording: Recording) -> dict[str, int]:
    """Return the optimizer state at the end of the memory window, and the gradients of its last step, in bytes."""
    (window,) = recording.named("memory")
    owners, marks = window.table("owner"), window.table("step")["last_sequence"]
    state = owners[owners["role"] == Role.OPTIMIZER_STATE]
    last = state[state["sequence"] == state["sequence"].max(initial=0)]
    gradients = owners[(owners["role"] == Role.GRADIENT) & (owners["sequence"] > marks[-2])]
    return {
        # Several optimizers may share it: each place counts once.
        "state_at_the_end": sum({int(row["address"]): int(row["bytes"]) for row in last}.values()),
        "gradients_of_a_step": int(sum({row["name"]: row["bytes"] for row in gradients}.values())),
    }


def seeded_torch() -> None:
    """Set torch's seed and threads."""
    import torch

    torch.manual_seed(SEED)
    torch.set_num_threads(THREADS)


def seeded_mxnet() -> None:
    """Set MXNet's seed; its threads are those of the environment."""
    assert os.environ["OMP_NUM_THREADS"] == str(THREADS)
    import mxnet as mx

    mx.random.seed(SEED)


def seeded_tensorflow() -> None:
    """Set TensorFlow's seed and threads."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    tf.random.set_seed(SEED)


def of_torch(workload: Any) -> Named:
    """Yield weights, buffers and optimizer state of torch."""
    for number, model in enumerate(listed(workload.model)):
        yield from ((f"{number}.{name}", value.numpy()) for name, value in model.state_dict().items())
    for number, optimizer in enumerate(listed(workload.optimizer)):
        for key, slots in optimizer.state_dict()["state"].items():
            yield from ((f"{number}/{key}/{slot}", np.asarray(value)) for slot, value in slots.items())


def of_mxnet(workload: Any) -> Named:
    """Yield weights, buffers and optimizer state of MXNet."""
    import mxnet as mx

    for number, model in enumerate(listed(workload.model)):
        for name, value in model._collect_params_with_prefix().items():
            yield f"{number}.{name}", value.data().asnumpy()
    for number, trainer in enumerate(listed(workload.optimizer)):
        for key, slots in trainer._updaters[0].states.items():
            arrays = slots if isinstance(slots, list | tuple) else [slots]
            yield from (
                (f"{number}/{key}/{place}", array.asnumpy())
                for place, array in enumerate(arrays)
                if isinstance(array, mx.nd.NDArray)
            )


def of_tensorflow(workload: Any) -> Named:
    """Yield weights, buffers and optimizer state of TensorFlow."""
    for number, owner in enumerate([*listed(workload.model), *listed(workload.optimizer)]):
        for place, variable in enumerate(owner.variables):
            yield f"{number}.{place}.{variable.path}", np.asarray(variable)


def states_of_torch(workload: Any) -> Iterator[Any]:
    """Yield every tensor of torch's optimizer state, step counters among it."""
    for optimizer in listed(workload.optimizer):
        for slots in optimizer.state_dict()["state"].values():
            yield from (value for value in slots.values() if hasattr(value, "nbytes"))


def states_of_mxnet(workload: Any) -> Iterator[Any]:
    """Yield every array of MXNet's optimizer state."""
    return (value for name, value in of_mxnet(workload) if "/" in name)


def states_of_tensorflow(workload: Any) -> Iterator[Any]:
    """Yield every variable of the optimizers."""
    return (np.asarray(each) for optimizer in listed(workload.optimizer) for each in optimizer.variables)


STATES: dict[str, Callable[[Any], Iterator[Any]]] = {
    "torch": states_of_torch,
    "mxnet": states_of_mxnet,
    "tensorflow": states_of_tensorflow,
}
SEEDED: dict[str, Callable[[], None]] = {
    "torch": seeded_torch,
    "mxnet": seeded_mxnet,
    "tensorflow": seeded_tensorflow,
}
VALUES: dict[str, Callable[[Any], Named]] = {"torch": of_torch, "mxnet": of_mxnet, "tensorflow": of_tensorflow}


def left(workload: Any) -> dict[str, str]:
    """Return a digest of each array the training leaves behind."""
    return {name: hashlib.sha256(value.tobytes()).hexdigest() for name, value in VALUES[FRAMEWORK](workload)}


def nudge(workload: Any) -> None:
    """Move one value of the first trained weight by one unit in the last place (of torch's alone)."""
    import torch

    with torch.no_grad():
        weight = next(each for each in listed(workload.model)[0].parameters() if each.requires_grad)
        weight.view(-1)[0] = float(np.nextafter(np.float32(weight.view(-1)[0].item()), np.float32(2)))


with short_sequences.short():
    main()
