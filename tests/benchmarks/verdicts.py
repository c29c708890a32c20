"""The verdict on ten loops, each planted with what limits it, on a machine where another process is busy.

    python tests/benchmarks/verdicts.py [--times N] [--quiet] [--keep FOLDER] [LOOP ...]

Each loop has a process of its own and runs there several times. Prints what the verdict named. Exits with 1 if a
verdict was wrong: it may name what was planted or say that it cannot tell, and nothing else.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BUSY = "while True: pass"
LIMIT_S = 1200
STEPS = 40  # more than the windows take: the profiler goes idle after its last one

# What the verdict may name.
PLANTED = {
    "loader": {"data"},
    "launching": {"launching"},
    "compute": {"compute"},
    "memory": {"memory"},
    "communication": {"communication"},
    "python": {"launching"},  # between the operators of the forward pass
    "made_batch": {"data"},
    "optimizer": {"memory"},  # Adam reads and writes every weight and its state
    "sleeping": {"other"},  # after the update
    "mixed": {"data", "compute"},
}


def main(loops: list[str], times: int, keep: str, *, quiet: bool) -> int:
    """Run the loops, print the table, and return the exit code."""
    wrong = 0
    with busy_process(quiet=quiet):
        print("| loop | planted | right | cannot tell | wrong | the last verdict |\n|---|---|---|---|---|---|")
        for loop in loops:
            found = run(loop, times, keep)
            states = [judged(loop, each) for each in found]
            wrong += states.count("wrong")
            counts = " | ".join(str(states.count(state)) for state in ("right", "cannot tell", "wrong"))
            worst = found[states.index("wrong")] if "wrong" in states else found[-1]
            print(f"| {loop} | {' or '.join(sorted(PLANTED[loop]))} | {counts} | {worst['sentence']} |", flush=True)
    return 1 if wrong else 0


def judged(loop: str, verdict: dict[str, Any]) -> str:
    """Return "right", "cannot tell" (what was planted is among the candidates) or "wrong"."""
    if verdict["bound_by"] is not None:
        return "right" if verdict["bound_by"] in PLANTED[loop] else "wrong"
    return "cannot tell" if PLANTED[loop] & set(verdict["candidates"]) else "wrong"


@contextmanager
def busy_process(*, quiet: bool) -> Iterator[None]:
    """Keep a core busy during the block, unless it is to be quiet."""
    process = None if quiet else subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def run(loop: str, times: int, keep: str) -> list[dict[str, Any]]:
    """Return the verdicts on a loop, from a process of its own."""
    command = [sys.executable, __file__, "--times", str(times), "--keep", keep, "--within", loop]
    # One thread each: several would wait for the one whose core is busy, in every operator.
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}
    if loop == "communication":
        with socket.socket() as free:
            free.bind(("localhost", 0))
            environment |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
        other = subprocess.Popen(command, env={**environment, "RANK": "1"}, stdout=subprocess.DEVNULL)
        try:
            return answer(command, {**environment, "RANK": "0"})
        finally:
            other.kill()
            other.wait()
    return answer(command, environment)


def answer(command: list[str], environment: dict[str, str]) -> list[dict[str, Any]]:
    """Return the JSON list that a process printed last."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def within(loop: str, times: int, keep: str) -> None:
    """Run a loop several times in this process and print the verdicts."""
    import torch

    from tbdprof.facts.records import Peaks
    from tbdprof.hooks import probing
    from tbdprof.report.json_report import document

    # The loops are what is tried: the peaks are measured once in a process, however disturbed.
    known: list[Peaks] = []

    def once(_device: str, precisions: list[str], measured: Callable[[list[str]], Peaks]) -> Peaks:
        if not known:
            known.append(replace(measured(precisions), others=None))
        return known[0]

    probing.peaks = once
    if loop == "communication":
        torch.distributed.init_process_group("gloo")
        torch.set_num_threads(1)
    torch.manual_seed(0)
    found = []
    for place in range(times):
        prof = _profiled(torch, loop)
        found.append(document(prof.summary)["verdict"])
        if keep and os.environ.get("RANK", "0") == "0":
            prof.save(Path(keep) / f"{loop}-{place}.tbd", force=True)
    print(json.dumps(found))


def _profiled(torch: Any, loop: str) -> Any:
    import tbdprof

    model, optimizer, batches, loss, after = globals()[f"_{loop}"](torch)
    with tbdprof.profile(model, optimizer, warmup=3, steps=5) as prof:
        for batch in batches:
            optimizer.zero_grad()
            loss(batch).backward()
            after()
            optimizer.step()
            if loop == "sleeping":
                time.sleep(0.04)
            prof.step(1)
            if not prof.active and loop != "communication":  # its processes take the same steps
                break
    return prof


Loop = tuple[Any, Any, Iterable[Any], Callable[[Any], Any], Callable[[], object]]


def _nothing() -> None:
    pass


def _dense(torch: Any, width: int, depth: int = 4) -> tuple[Any, Any]:
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(depth)))
    return model, torch.optim.SGD(model.parameters(), 1e-6)


def _loader(torch: Any) -> Loop:
    """Wait 30 ms for each batch of a small model."""
    model, optimizer = _dense(torch, 64)
    return model, optimizer, _slow(torch.ones(8, 64), 0.03), lambda batch: model(batch).sum(), _nothing


def _launching(torch: Any) -> Loop:
    """Train 200 layers of one value each."""
    model = torch.nn.Sequential(*(layer for _ in range(100) for layer in (torch.nn.Linear(1, 1), torch.nn.Tanh())))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    return model, optimizer, [torch.ones(1, 1)] * STEPS, lambda batch: model(batch).sum(), _nothing


def _compute(torch: Any) -> Loop:
    """Train dense layers of 512 values on a thousand samples."""
    model, optimizer = _dense(torch, 512)
    return model, optimizer, [torch.ones(1024, 512)] * STEPS, lambda batch: model(batch).sum(), _nothing


def _memory(torch: Any) -> Loop:
    """Scale, shift and rectify 4 million values, one operator after another."""
    model, optimizer = _dense(torch, 8, 1)

    def loss(batch: Any) -> Any:
        scale = model(batch[:8]).mean()
        for _ in range(3):
            batch = torch.relu(batch * scale) + 1.0
        return batch.sum()

    return model, optimizer, [torch.ones(4 << 20)] * STEPS, loss, _nothing


def _communication(torch: Any) -> Loop:
    """Reduce 32 MiB between two processes after each backward pass of a small model."""
    model, optimizer = _dense(torch, 64)
    buffer = torch.ones(8 << 20)
    batches = [torch.ones(8, 64)] * STEPS
    return model, optimizer, batches, lambda batch: model(batch).sum(), lambda: torch.distributed.all_reduce(buffer)


def _python(torch: Any) -> Loop:
    """Compute in Python between the layers."""
    model, optimizer = _dense(torch, 64)

    def loss(batch: Any) -> Any:
        for layer in model:
            batch = layer(batch) * (sum(place * place for place in range(60_000)) and 1)
        return batch.sum()

    return model, optimizer, [torch.ones(8, 64)] * STEPS, loss, _nothing


def _made_batch(torch: Any) -> Loop:
    """Let the framework draw and blur a batch of a million values for a small model."""
    model, optimizer = _dense(torch, 64)

    def batches() -> Iterator[Any]:
        for _ in range(STEPS):
            images = torch.randn(64, 1, 128, 128)
            yield torch.nn.functional.avg_pool2d(images, 5, 1, 2).flatten()[: 8 * 64].view(8, 64)

    return model, optimizer, batches(), lambda batch: model(batch).sum(), _nothing


def _optimizer(torch: Any) -> Loop:
    """Update 8 million weights of which a step uses a few."""
    model = torch.nn.Linear(2048, 4096, bias=False)
    optimizer = torch.optim.Adam(model.parameters())
    return model, optimizer, [torch.ones(1, 2048)] * STEPS, lambda batch: model(batch).sum(), _nothing


def _sleeping(torch: Any) -> Loop:
    """Sleep 40 ms after each update of a small model."""
    model, optimizer = _dense(torch, 64)
    return model, optimizer, [torch.ones(8, 64)] * STEPS, lambda batch: model(batch).sum(), _nothing


def _mixed(torch: Any) -> Loop:
    """Wait for a batch about as long as is computed on it."""
    model, optimizer = _dense(torch, 512)
    batches = _slow(torch.ones(512, 512), 0.02)
    return model, optimizer, batches, lambda batch: model(batch).sum(), _nothing


def _slow(batch: Any, seconds: float) -> Iterator[Any]:
    for _ in range(STEPS):
        time.sleep(seconds)
        yield batch


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The verdict on ten planted loops.")
    parser.add_argument("loops", nargs="*", default=[*PLANTED], metavar="LOOP")
    parser.add_argument("--times", type=int, default=5, help="how often each loop runs")
    parser.add_argument("--quiet", action="store_true", help="no busy process beside them")
    parser.add_argument("--keep", default="", metavar="FOLDER", help="where to keep the recordings")
    parser.add_argument("--within", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.within:
        within(asked.within, asked.times, asked.keep)
    else:
        sys.exit(main(asked.loops, asked.times, asked.keep, quiet=asked.quiet))
