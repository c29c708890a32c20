"""What needs a process of its own: torch not yet imported, environment, fork."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

COUNTED = """
import json, sys
from tbdprof.hooks import Setting, load
from tbdprof.facts.records import Strings
hook = load("torch")
assert "torch" not in sys.modules
hook.prepare(Setting(device="cpu", threads=1, seed=5))
import torch
model = torch.nn.Linear(100, 10)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook.watch([model], [optimizer])
hidden = torch.nn.Linear(100, 10)(torch.ones(3, 100)).relu().grad_fn
hook.start("memory")
model(torch.ones(2, 100)).sum().backward()
optimizer.step()
hook.mark_step()
hook.stop()
rows = hook.drain(Strings()).tables["allocation"]
live, differences = 0, set()
for row in rows:
    live += int(row["allocated_bytes"]) * (-1 if row["kind"] == 0 else 1)
    if row["kind"] != 2:
        differences.add(int(row["total_bytes"]) - live)
facts = hook.facts()
print(json.dumps({
    "differences": sorted(differences), "independent_total": hook.independent_total,
    "since": hook.watched_since,
    "threads": facts.threads, "device": facts.device, "peak": hook.whole_run_peak_bytes,
    "seed": torch.initial_seed(), "shapes": [p.shape for p in facts.parameters],
}))
hook.close()
"""

RESTORED = """
import json, os, torch
from tbdprof.hooks import Setting, load
from tbdprof.hooks.on_torch.memory.accounting import accounting_flag
from tbdprof.hooks.on_torch.session.session import is_profiler_active
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
model = torch.nn.Sequential(torch.nn.Linear(2, 2))
trainer = torch.optim.SGD(model.parameters(), 0.1)
def state():
    hooks = [dict(m._forward_hooks) | dict(m._forward_pre_hooks) for m in model.modules()]
    shared = [dict(value) for name, value in vars(modules).items() if name.startswith("_global_")
              and isinstance(value, dict)]
    shared += [dict(optimizers._global_optimizer_pre_hooks),
               dict(optimizers._global_optimizer_post_hooks),
               dict(trainer._optimizer_step_pre_hooks), dict(trainer._optimizer_step_post_hooks)]
    return repr([hooks, shared, dict(os.environ), accounting_flag().value, is_profiler_active(),
                 torch.get_num_threads(), torch.get_rng_state().tolist()])
def step():
    model(torch.ones(1, 2)).sum().backward()
    trainer.step()
before = state()
changed = []
for models, trainers in (([model], [trainer]), ([], [])):
    hook = load("torch")
    hook.prepare(Setting(device="cpu", threads=1))
    hook.watch(models, trainers)
    hook.start("memory")
    step()
    changed.append(state() != before)
    hook.close()
    changed.append(state() != before)
print(json.dumps(changed))
"""

FORKED = """
import json, os, sys, torch
from tbdprof.hooks import load
from tbdprof.facts.records import Strings
model = torch.nn.Linear(2, 2)
hook = load("torch")
hook.attach()
hook.watch([model], [torch.optim.SGD(model.parameters(), 0.1)])
hook.start("memory")
child = os.fork()
if child == 0:
    with torch.no_grad():
        model(torch.ones(1, 2))
    hook.mark_step()
    os._exit(0 if not any(m.point.name == "STEP" for m in hook._joined.watch.markers.marks.values())
             else 1)
status = os.waitpid(child, 0)[1]
model(torch.ones(1, 2)).sum().backward()
hook.mark_step()
hook.stop()
print(json.dumps([status, len(hook.drain(Strings()).marks)]))
hook.close()
"""


FORKED_WITH_A_THREAD = """
import json, os, threading, time, torch
from tbdprof.hooks.on_torch.session.session import Session
with torch.autograd.profiler.profile(use_kineto=True):
    torch.ones(1)
child = os.fork()
if child == 0:
    # The C library gives a new thread the number of the one that is gone.
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    session = Session("kernels")
    torch.ones(1)
    names = [event.name() for event in session.end().result.events()]
    os._exit(0 if names.count("aten::ones") == 1 else 1)
print(json.dumps(os.waitpid(child, 0)[1]))
"""

LATE = """
import json, torch
from tbdprof.hooks import load
from tbdprof.hooks.on_torch.session.libraries import ctypes, variable
older = [torch.empty(100) for _ in range(10)]
hook = load("torch")
hook.attach()
older.clear()
print(json.dumps([hook.watched_since, variable(ctypes.c_int, "FLAGS_caffe2_log_level").value]))
hook.close()
"""

CHOSEN = """
import gc, json, torch
from tbdprof.hooks import Setting, load
torch.cuda.is_available = lambda: True  # a machine with a GPU, on which the loop trains on the CPU
torch.cuda.get_device_name = lambda device: "a GPU"
hook = load("torch")
hook.prepare(Setting(device="auto"))
devices = [hook.facts().device]
model = torch.nn.Linear(2, 2)
hook.watch([model], [])
devices.append(hook.facts().device)
del model
gc.collect()
devices.append(hook.facts().device)
hook.close()
print(json.dumps(devices))
"""


def run(script: str) -> tuple[object, str]:
    """Run a script in a process in whose environment no hook of this process has set anything."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_LOG_LEVEL")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**kept, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_prepared_before_torch_every_byte_is_counted() -> None:
    printed, stderr = run(COUNTED)
    assert isinstance(printed, dict)
    # The graph keeps relu's result in a tensor of its own, which Python never saw.
    assert printed["differences"] == [3 * 10 * 4]
    assert printed["independent_total"] is None
    assert printed["since"] == "before the first allocation"
    assert (printed["threads"], printed["device"], printed["peak"], printed["seed"]) == (1, "cpu", None, 5)
    assert printed["shapes"] == [[10, 100], [10]]
    assert stderr == ""


def test_close_leaves_hooks_environment_flag_and_threads_as_they_were() -> None:
    printed, _ = run(RESTORED)
    assert printed == [True, False, True, False]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_places_no_markers() -> None:
    printed, _ = run(FORKED)
    assert printed == [0, 1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_does_not_wait_for_the_thread_of_a_profiler_of_its_parent() -> None:
    """The child would hang or abort: it has no such thread, or another one in its place."""
    printed, _ = run(FORKED_WITH_A_THREAD)
    assert printed == 0


def test_who_comes_late_says_so_and_older_blocks_die_unheard() -> None:
    printed, stderr = run(LATE)
    assert printed == ["profile() was called, after torch had been imported", 1]
    assert stderr == ""


def test_a_device_left_to_choose_is_where_the_parameters_are() -> None:
    printed, _ = run(CHOSEN)
    assert printed == ["cuda:0", "cpu", "cpu"]
