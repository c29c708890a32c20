"""`tbdprof run -- python train.py` of a loop of 12 steps: memory, kernels, throughput, and how the script ended."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from known_peaks import QUICK_START

ROOT = Path(__file__).parents[2]
STEPS = 12
WEIGHT_BYTES = 4 * (8 * 4 + 4)  # of a dense layer of 8 inputs and 4 outputs
FLOPS = 2 * (2 * 8 * 4 * 2)  # of a batch of two, forward and for the weight's gradient; the input needs none

TORCH = """
import torch
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(12):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
"""
MXNET = """
import numpy
vars(numpy).setdefault("bool", bool)
import mxnet as mx
net = mx.gluon.nn.Dense(4, in_units=8)
net.initialize()
trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9})
for _ in range(12):
    with mx.autograd.record():
        loss = net(mx.nd.ones((2, 8))).sum()
    loss.backward()
    trainer.step(2)
"""
KERAS = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
model.fit(numpy.ones((24, 8)), numpy.ones((24, 4)), batch_size=2, verbose=0)
"""


@pytest.mark.parametrize(
    ("script", "ending", "code", "first"),
    [
        pytest.param(TORCH, "sys.exit(3)", 3, QUICK_START, id="torch"),
        pytest.param(MXNET, "os.kill(os.getpid(), 15)", 128 + signal.SIGTERM, QUICK_START, id="mxnet"),
        pytest.param(KERAS, "", 0, "", id="tensorflow"),  # starts as a user's does
    ],
)
def test_a_script_of_12_steps_has_memory_kernels_and_a_throughput(
    tmp_path: Path, script: str, ending: str, code: int, first: str
):
    (tmp_path / "train.py").write_text(f"{script}\nimport os, sys\n{ending}")
    done = subprocess.run(
        [sys.executable, "-m", "tbdprof", "run", "--json", "-o", "a.tbd", "--", sys.executable, "train.py"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [first, str(ROOT)]))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == code, done.stderr
    report = json.loads(done.stdout)
    assert report["run"]["early_steps"] == {"memory": 3, "clean": 3, "kernels": 3}
    assert report["memory"]["mismatches"] == 0
    assert report["memory"]["roles_at_peak"]["weight"] == WEIGHT_BYTES
    assert report["memory"]["roles_at_peak"]["optimizer_state"] >= WEIGHT_BYTES  # Keras has counters, too
    assert report["run"]["flops_per_unit"] == {"steps": FLOPS, "samples": FLOPS / 2}
    assert report["throughput"]["unit"]["per_s"] > 0
