"""Unchanged scripts in MXNet's Module API."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from known_peaks import QUICK_START

from tbdprof.facts.batches import FIRST_SIZE

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("mxnet is not installed", allow_module_level=True)

ROOT = Path(__file__).parents[3]
STEPS = 16  # the kernels window of the options below begins at the 13th and would end at the 20th or later
SCRIPT = f"""
import mxnet as mx, numpy as np
net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc1")
net = mx.sym.SoftmaxOutput(net, name="softmax")
made = np.random.RandomState(0)
batches = mx.io.NDArrayIter(made.rand(4 * {STEPS}, 5), made.randint(0, 3, 4 * {STEPS}), 4)
module = mx.mod.Module(net, context=mx.cpu())
module.fit(batches, num_epoch=1, optimizer_params={{"learning_rate": 0.1, "momentum": 0.9}})
"""

BY_HAND = """
import mxnet as mx, numpy as np
net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc1")
net = mx.sym.SoftmaxOutput(net, name="softmax")
made = np.random.RandomState(0)
batches = mx.io.NDArrayIter(made.rand(4, 5), made.randint(0, 3, 4), 4)
batch = batches.next()
module = mx.mod.Module(net, context=mx.cpu())
module.bind(batches.provide_data, batches.provide_label)
module.init_params()
for _ in range(16):
    module.forward(data_batch=batch, is_train=True)
    module.backward()
    group = module._exec_group
    for (weight,), (gradient,) in zip(group.param_arrays, group.grad_arrays):
        weight -= 0.1 * gradient
"""


def report_of(script: str, folder: Path, first: str = "") -> Any:
    """Return the report on a script, with a folder first on its path."""
    (folder / "train.py").write_text(script)
    options = ["--warmup", "2", "--steps", "3", "--json", "-o", "a.tbd"]
    done = subprocess.run(
        [sys.executable, "-m", "tbdprof", "run", *options, "--", sys.executable, "train.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [first, str(ROOT)])), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_script_that_ends_within_its_kernels_window_keeps_what_was_recorded(tmp_path: Path) -> None:
    report = report_of(SCRIPT, tmp_path)
    memory, parameters = report["memory"], 4 * (3 * 5 + 3)
    assert memory["independent_peak_bytes"] == memory["allocator_peak_bytes"]
    assert memory["mismatches"] == memory["roles_max"]["unknown"] == 0
    assert memory["roles_at_peak"]["weight"] == memory["roles_at_peak"]["optimizer_state"] == parameters
    assert not report["run"]["complete"]
    run, flops = report["run"], 2 * (2 * 5 * 3)  # forward, and the weight's gradient
    assert (run["batch_size"], run["samples_from"]) == (4, FIRST_SIZE)
    assert run["flops_per_sample"] == flops
    assert "kernels" not in report["missing"], report["missing"]
    assert {"FullyConnected", "_backward_FullyConnected"} <= {row["name"] for row in report["kernels"]}


def test_a_module_without_an_optimizer_has_steps_in_its_windows(tmp_path: Path) -> None:
    report = report_of(BY_HAND, tmp_path, QUICK_START)
    assert report["run"]["steps"]["memory"] == 4
    assert report["run"]["steps"]["kernels"] > 0
    assert report["time"]["phases"]["update"]["busy_seconds"] > 0
    assert report["memory"]["roles_at_peak"]["gradient"] == 4 * (3 * 5 + 3)
