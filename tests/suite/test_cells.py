"""Every model in every framework: its report is complete and adds up, and observing changes no bit of the training."""

import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import forking
import pytest
import short_sequences

from tbdprof import suite

ROOT = Path(__file__).parent.parent.parent
PROGRAM = Path(__file__).parent / "cells" / "cell.py"
SEED = 3  # the cells'
LIMIT_S = 600
PATH = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support")))
# The smallest at which each is still the whole network.
TINY: dict[str, dict[str, Any]] = {
    "resnet50": {"batch_size": 2, "image_size": 64},
    "inception_v3": {"batch_size": 2},
    "faster_rcnn": {"image_size": 96, "proposals_before": 200, "proposals_after": 50, "regions": 8},
    "wgan": {"batch_size": 1, "critic_steps": 1},
    "seq2seq": {"batch_size": 2},
    "deep_speech2": {"longest": 1},
    "a3c": {"actors": 1},
    "transformer": {"batch_size": 1, "layers": 2, "vocabulary": 4000},
}
# The Transformer's embedding, and twice a block of the encoder and of the decoder: the paper's has three times as many.
SMALLER = {"transformer": 4000 * 512 + 2 * (3_152_384 + 4_204_032)}
# Of A3C an actor's copy is trained; in Keras, whose optimizer changes the shared network itself, that is, too.
TRAINED_NETWORKS = {("a3c", "tensorflow"): 2}
CELLS = [(model, framework) for model in suite.names() for framework in suite.frameworks(model)]
# TensorFlow traces each network twice for these, which takes 20 to 40 s.
LONG = {
    (model, "tensorflow") for model in ("inception_v3", "wgan", "faster_rcnn", "seq2seq", "deep_speech2", "transformer")
}


@cache
def cell(model: str, framework: str, how: str) -> dict[str, Any]:
    """Return what a run of a cell printed, by how it was observed; each runs in a fork, with one thread."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "PYTHONPATH": PATH, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    words = [str(PROGRAM), model, framework, how, json.dumps(TINY.get(model, {}))]
    done = forking.run(framework, words, env=environment, prepared=how != "unobserved", timeout_s=LIMIT_S)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def observed(model: str, framework: str) -> dict[str, Any]:
    """Return what the observed run of a cell printed."""
    return cell(model, framework, "observed")


def different(ones: dict[str, str], others: dict[str, str]) -> Sequence[str]:
    """Return the names of the arrays that differ."""
    assert ones.keys() == others.keys()
    return [name for name in ones if ones[name] != others[name]]


every_cell = pytest.mark.parametrize(
    ("model", "framework"),
    [pytest.param(*each, marks=[pytest.mark.long] if each in LONG else []) for each in CELLS],
)


def test_each_convolutional_model_is_written_for_each_framework() -> None:
    assert {(model, framework) for model in TINY for framework in ("torch", "mxnet", "tensorflow")} <= set(CELLS)


@every_cell
def test_an_observed_run_trains_the_same_bits(model: str, framework: str) -> None:
    watched, alone = observed(model, framework), cell(model, framework, "unobserved")

    names = ("clean", "memory", "clean", "kernels", "clean") if model == "resnet50" else ("memory", "kernels")
    assert watched["windows"] == [[name, "complete"] for name in ("warmup", *names)]
    assert different(watched["left"], alone["left"]) == []


def test_a_weight_moved_by_one_unit_in_the_last_place_is_noticed() -> None:
    nudged = cell("resnet50", "torch", "nudged")

    assert len(different(nudged["left"], observed("resnet50", "torch")["left"])) > 200


@every_cell
def test_memory_adds_up_to_the_allocators_own_total(model: str, framework: str) -> None:
    report = observed(model, framework)["report"]
    memory = report["memory"]

    assert report["run"]["complete"] is True
    assert memory["mismatches"] == 0, memory["violations"]
    assert memory["roles_at_peak"]["unknown"] == memory["roles_max"]["unknown"] == 0
    assert memory["independent_peak_bytes"] == memory["allocator_peak_bytes"]
    assert sum(memory["at_peak"].values()) == memory["independent_peak_bytes"]


@every_cell
def test_weights_gradients_and_state_are_arithmetic(model: str, framework: str) -> None:
    facts = observed(model, framework)
    memory, parameters = facts["report"]["memory"], SMALLER.get(model, suite.find(model).parameters)

    assert facts["parameters"] == TRAINED_NETWORKS.get((model, framework), 1) * parameters
    assert memory["at_optimizer_step"]["weight"] == facts["held_bytes"]
    assert facts["state_at_the_end"] == facts["state_bytes"]
    if framework == "tensorflow":  # which frees gradients one by one, and makes 0.2 % of them in other maps' memory
        assert 0.99 * 4 * parameters < facts["gradients_of_a_step"] <= 4 * parameters
    elif model != "wgan":  # whose two optimizers take turns
        assert memory["at_optimizer_step"]["optimizer_state"] == facts["state_bytes"]
        assert memory["at_optimizer_step"]["gradient"] == 4 * parameters


@pytest.mark.parametrize("framework", [framework for model, framework in CELLS if model == "a3c"])
def test_an_actors_copy_is_weights_beside_the_shared_ones(framework: str) -> None:
    facts = observed("a3c", framework)

    assert facts["held_bytes"] == (1 + 1) * 4 * suite.find("a3c").parameters


@every_cell
def test_time_is_reported_by_operator(model: str, framework: str) -> None:
    report = observed(model, framework)["report"]

    spec = suite.find(model)
    asked = dict(TINY[model])
    config = suite.configure(spec, batch_size=asked.pop("batch_size", None), seed=SEED, options=asked)
    with short_sequences.short():
        assert report["run"]["flops_per_sample"] == spec.sample_flops(config, framework)
    phases = report["time"]["phases"]
    assert sum(phase["seconds"] for phase in phases.values()) == pytest.approx(report["time"]["step_s"])
    assert all(phases[name]["busy_seconds"] > 0 for name in ("forward", "backward", "update"))
