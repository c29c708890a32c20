"""Keras that computes with torch: an unchanged `fit` is seen as torch's own loops are; no backend ends a training."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("keras")
pytest.importorskip("torch")
from tbdprof.analysis.kernels.flops import count
from tbdprof.analysis.summary import summarize
from tbdprof.facts.file.reading import load
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Phase, Role, SpanKind
from tbdprof.facts.work import parse
from tbdprof.hooks.on_torch.watch import keras_optimizers

ROOT = Path(__file__).parents[3]
BATCH, ITERATION, RATE, SEED = 16, 4, 4, 8  # bytes of the optimizer's counter and rate, and of a dropout's seed
FIRST, LAST = 6 * 7, 7 * 5
TRAINED = 4 * (FIRST + 7 + 2 * 7 + LAST + 5)
SCRIPT = f"""
import sys
import numpy as np
import keras
import tbdprof

model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(7), keras.layers.BatchNormalization(),
                          keras.layers.Dropout(0.5), keras.layers.Dense(5)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(), loss)
data = np.ones((40 * {BATCH}, 6), "float32"), np.zeros(40 * {BATCH})
model.fit(*data, batch_size={BATCH}, verbose=0)
keras.config.backend = lambda: "jax"
model.fit(*data, batch_size=320, verbose=0, callbacks=[tbdprof.keras.Callback()])
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("keras")
    (folder / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1"}
    run = [sys.executable, "-m", "tbdprof", "run", "--warmup", "2", "--steps", "2", "-o", "a.tbd"]
    done = subprocess.run(
        [*run, "--", sys.executable, "train.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Keras computes with jax here" in done.stderr
    return load(folder / "a.tbd")


def test_every_window_of_the_fit_is_recorded(recording: Recording) -> None:
    windows = [(window.name, len(window.table("step"))) for window in recording.windows]
    assert windows == [("warmup", 2), ("clean", 2), ("memory", 4), ("clean", 2), ("kernels", 4), ("clean", 2)]


def test_weights_statistics_and_state_are_the_arithmetics(recording: Recording) -> None:
    memory = summarize(recording).memory
    assert memory is not None
    assert (memory.violations, memory.mismatches) == ((), 0)
    assert memory.roles_max[Role.UNKNOWN] == 0
    assert memory.roles_at_peak[Role.WEIGHT] == TRAINED
    assert memory.roles_at_peak[Role.BUFFER] >= 4 * 2 * 7 + SEED
    assert memory.roles_at_peak[Role.OPTIMIZER_STATE] == 2 * TRAINED + ITERATION + RATE
    assert [(each.kind, len(each.parameters)) for each in recording.run.optimizers] == [("adam", 6)]
    assert {each.name for each in recording.run.parameters if each.trainable} == {
        *(f"{layer}.{name}" for layer in ("dense", "dense_1") for name in ("kernel", "bias")),
        "batch_normalization.gamma",
        "batch_normalization.beta",
    }


def test_products_are_in_their_layers_and_phases(recording: Recording) -> None:
    window = next(each for each in recording.windows if each.name == "kernels")
    spans = window.table("span")
    by_id, products = {int(row["id"]): row for row in spans}, Counter[tuple[str, str | None, int]]()
    for row in spans:
        flops = count(parse(recording.strings[row["work"]])) if row["work"] >= 0 else None
        if flops is None or not flops.model:
            continue
        around = row
        while around is not None and around["kind"] != SpanKind.LAYER:
            around = by_id.get(int(around["parent"]))
        layer = None if around is None else recording.strings[around["name"]]  # None in the backward pass
        products[Phase(int(row["phase"])).name, layer, flops.model] += 1

    first, last, steps = 2 * BATCH * FIRST, 2 * BATCH * LAST, len(window.table("step"))
    assert products == {
        ("FORWARD", "dense", first): steps,
        ("FORWARD", "dense_1", last): steps,
        ("BACKWARD", None, first): steps,  # the weight's: nobody asks for the input's
        ("BACKWARD", None, last): 2 * steps,
    }
    assert Phase.UPDATE in set(spans["phase"].tolist())


def test_a_thread_that_still_looks_for_keras_after_the_end_replaces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Optimizer:
        def apply(self) -> None:
            pass

    original = Optimizer.apply
    monkeypatch.setattr(keras_optimizers, "_optimizer_class", lambda: Optimizer)
    found = keras_optimizers.KerasOptimizers(lambda _: None, lambda _: None)
    found.find()
    assert Optimizer.apply is not original
    found.close()
    found.find()
    assert Optimizer.apply is original
