"""Training with other people's libraries: the same bits and exit code as without tbdprof, and figures as by hand.

`make test-libraries` runs these in an environment of their own, which has the libraries; `make test` does not.
Each program runs twice in fresh processes, plain and under `tbdprof run`, and writes its own word (`word.py`).
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tbdprof import Recording, Role, Summary, load, summarize

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TBDPROF = ["-m", "tbdprof", "run", "--warmup", "2", "--steps", "2", "-o", "run.tbd", "--"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TIMEOUT_S = 180
CODE = 3  # with which every program ends that runs alone

CASES = {
    "accelerate": ["with_accelerate.py"],
    "accelerate accumulates": ["with_accelerate.py", "accumulate"],
    "transformers": ["with_transformers.py"],
    "transformers recomputes": ["with_transformers.py", "checkpoint"],
    "lightning": ["with_lightning.py"],
    "peft": ["with_peft.py"],
    "ddp": ["with_processes.py", "ddp"],
    "fsdp2": ["with_processes.py", "fsdp2"],
    "keras fit": ["with_keras.py"],
    "keras train_step": ["with_keras.py", "train_step"],
    "mxnet module": ["with_mxnet.py"],
}
PROCESSES = ("ddp", "fsdp2")
COUNTER = 8  # bytes of Keras' count of steps: TensorFlow makes it anew in an update that still reads the old one
TENSORFLOW = ("keras fit", "keras train_step")  # which frees each gradient once it is applied
LAYERS = {
    "accelerate": {"0", "1", "2"},
    "accelerate accumulates": {"0", "1", "2"},
    "transformers": {"transformer.h.0.attn.c_attn", "transformer.h.1.mlp.c_fc", "lm_head"},
    "transformers recomputes": {"transformer.h.0.attn.c_attn", "transformer.h.1.mlp.c_fc", "lm_head"},
    "lightning": {"hidden", "head"},
    "peft": {"base_model.model.0.base_layer", "base_model.model.2.lora_B.default"},
    "ddp": {"module.0", "module.2"},
    "fsdp2": {"0", "2"},
    "keras fit": {"dense", "dense_1"},
    "keras train_step": {"encoder.dense", "decoder.dense_1"},
    "mxnet module": {"fc1", "relu1", "fc2", "softmax"},
}
every = pytest.mark.parametrize("case", CASES)


@dataclass(frozen=True)
class Outcome:
    """Exit codes and words of the plain and of the watched run, what the watched one said, and its recordings."""

    codes: tuple[int, int]
    plain: list[dict[str, Any]]
    watched: list[dict[str, Any]]
    said: str
    recordings: list[Recording]


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that lasts as long as this process."""
    return tempfile.TemporaryDirectory()


@cache
def run(case: str) -> Outcome:
    """Return what came of a program that ran twice, both at a time."""
    program, *words = CASES[case]
    place = Path(folder().name, case.replace(" ", "-"))
    place.mkdir()
    launcher = [sys.executable, *(TORCHRUN if case in PROCESSES else [])]
    plain = start([*launcher, str(HERE / program), "plain", *words], place)
    watched = start([sys.executable, *TBDPROF, *launcher, str(HERE / program), "watched", *words], place)
    errors = [each.communicate(timeout=TIMEOUT_S)[1] for each in (plain, watched)]
    codes = plain.returncode, watched.returncode
    paths = sorted(place.glob("*.tbd"))
    assert paths, f"nothing was recorded:\n{errors[1]}"
    return Outcome(codes, said(place, "plain"), said(place, "watched"), errors[1], [load(each) for each in paths])


def start(command: Sequence[str], place: Path) -> subprocess.Popen[str]:
    """Start a program."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "GLOO_SOCKET_IFNAME": "lo"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.DEVNULL, stderr=pipe, text=True)


def said(place: Path, name: str) -> list[dict[str, Any]]:
    """Return the words of a program's processes, by rank."""
    return [json.loads(path.read_text()) for path in sorted(place.glob(f"{name}.[0-9]"))]


def summaries(case: str) -> list[Summary]:
    """Return the results of every recording of a program."""
    return [summarize(each) for each in run(case).recordings]


@every
def test_the_exit_code_is_the_programs_own(case: str) -> None:
    code = 0 if case in PROCESSES else CODE
    assert run(case).codes == (code, code), run(case).said


@every
def test_the_program_ends_with_the_same_bits(case: str) -> None:
    outcome = run(case)
    assert len(outcome.plain) == (2 if case in PROCESSES else 1)
    assert outcome.watched == outcome.plain


@every
def test_all_windows_are_recorded_and_nothing_is_complained_of(case: str) -> None:
    for recording in run(case).recordings:
        assert recording.run.complete, recording.run.ended_by
        assert {window.name for window in recording.windows} == {"warmup", "clean", "memory", "kernels"}
        assert all(window.state == "complete" for window in recording.windows)
    complaints = [line for line in run(case).said.splitlines() if line.startswith("tbdprof: ")]
    assert all(line.startswith("tbdprof: recorded in ") for line in complaints), complaints


@every
def test_nothing_is_unknown_and_no_identity_is_violated(case: str) -> None:
    for summary in summaries(case):
        memory = summary.memory
        assert memory is not None
        assert (memory.mismatches, memory.violations) == (0, ())
        assert memory.roles_max[Role.UNKNOWN] == 0
        assert memory.independent_peak_bytes == memory.allocator_peak_bytes


@every
def test_weights_gradients_and_state_are_the_frameworks_own_sizes(case: str) -> None:
    (word, *_) = run(case).watched  # every process holds as much
    for recording, summary in zip(run(case).recordings, summaries(case), strict=True):
        assert summary.memory is not None
        assert summary.memory.roles_at_peak[Role.WEIGHT] == word["weights"]
        more = summary.memory.roles_at_peak[Role.OPTIMIZER_STATE] - word["state"]
        assert more in ((0, COUNTER) if case in TENSORFLOW else (0,))
        assert gradients(case, recording, summary) == word["gradients"]


def gradients(case: str, recording: Recording, summary: Summary) -> int:
    """Return the bytes of gradients when the optimizer steps; in TensorFlow, of those that a step's owners name."""
    if case not in TENSORFLOW:
        assert summary.memory is not None
        assert summary.memory.at_optimizer_step is not None
        return summary.memory.at_optimizer_step[Role.GRADIENT]
    (window,) = recording.named("memory")
    owners, ends = window.table("owner"), window.table("step")["last_sequence"]
    mine = owners[(owners["role"] == Role.GRADIENT) & (owners["sequence"] > ends[-2])]
    return int(sum({row["name"]: row["bytes"] for row in mine}.values()))


@every
def test_the_flops_of_a_step_are_those_counted_by_hand(case: str) -> None:
    for summary in summaries(case):
        assert summary.utilization is not None
        assert summary.utilization.flops_per_step == run(case).watched[0]["flops"]


@every
def test_layers_have_the_names_that_the_program_gave_them(case: str) -> None:
    for summary in summaries(case):
        assert summary.layers is not None
        assert {row.layer for row in summary.layers} >= LAYERS[case]


@every
def test_every_phase_has_time(case: str) -> None:
    for summary in summaries(case):
        assert summary.step_time is not None
        busy = {phase.name: phase.busy_seconds for phase in summary.step_time.phases}
        assert min(busy[name] for name in ("forward", "backward", "update")) > 0
        assert (busy["recompute"] > 0) == (case == "transformers recomputes")


@pytest.mark.parametrize("case", PROCESSES)
def test_what_the_processes_send_is_the_arithmetics(case: str) -> None:
    for summary in summaries(case):
        assert summary.step_time is not None
        assert summary.step_time.communication is not None
        assert summary.step_time.communication.sent_bytes == run(case).watched[0]["sent"]
        whole = summary.recording.run.whole_parameters or summary.parameter_count  # None: this process has all
        assert whole == run(case).watched[0]["whole"]
