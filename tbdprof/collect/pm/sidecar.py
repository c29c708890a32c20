"""The process that samples a GPU's counters for another one: `python -m tbdprof.collect.pm.sidecar`.

It reads one command per line: `start`, `stop` or `quit`. It answers each command, and its own start, with one JSON
object per line: `{"state": "ready", "chip": …, "metrics": …}`, `started`, `stopped` with the file of the samples, or
`error` with CUPTI's number of the error. A file is numpy's `.npz`: `start_ns` and `end_ns` on the clock of
`time.monotonic_ns`, which all processes of a machine share, and one column per counter.

It ends when its input ends, when its parent dies, and after a time limit, whatever it is doing.
"""

import argparse
import ctypes
import json
import os
import select
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tbdprof.collect.pm import CuptiError, Sampler
from tbdprof.collect.pm.opening import opened
from tbdprof.collect.pm.sampling import POLL_S, Samples, Sampling

Say = Callable[[dict[str, Any]], None]
Commands = Callable[[float | None], str | None]

_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the process that started this one."""
    parser = argparse.ArgumentParser(prog="tbdprof.collect.pm.sidecar")
    parser.add_argument("--device", type=int, required=True, help="as the CUDA driver numbers them here")
    parser.add_argument("--interval-ns", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="where files of samples go")
    parser.add_argument("--limit-s", type=int, required=True, help="it ends after this time")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.alarm(options.limit_s)
    _die_with_parent()
    serve(partial(opened, options.device), options.interval_ns, options.folder, _answers(), lines_of(0))


def serve(open_sampler: Callable[[], Sampler], interval_ns: int, folder: Path, say: Say, commands: Commands) -> None:
    """Follow commands until the last one; if CUPTI refuses, report the error and end."""
    try:
        sampling = Sampling(open_sampler, interval_ns)
        try:
            say(_ready(sampling))
            _follow(sampling, folder, say, commands)
        finally:
            sampling.close()
    except CuptiError as error:
        say({"state": "error", "call": error.call, "status": error.status, "text": error.text})


def lines_of(descriptor: int) -> Commands:
    """Return a function that waits for a line (None: without limit); it returns None if none comes, "" at the end."""
    read = bytearray()

    def line(timeout_s: float | None) -> str | None:
        while b"\n" not in read:
            if not select.select([descriptor], [], [], timeout_s)[0]:
                return None
            more = os.read(descriptor, 4096)
            if not more:
                return ""
            read.extend(more)
        found, _, rest = bytes(read).partition(b"\n")
        read[:] = rest
        return found.decode(errors="replace")

    return line


def _follow(sampling: Sampling, folder: Path, say: Say, commands: Commands) -> None:
    files = 0
    while True:
        command = commands(POLL_S if sampling.on else None)
        if command is None:
            sampling.poll()
        elif command == "start":
            sampling.start()
            say({"state": "started"})
        elif command == "stop" and sampling.on:
            files += 1
            say(_stopped(sampling.finish(), folder / f"samples-{files}.npz"))
        else:
            return


def _ready(sampling: Sampling) -> dict[str, Any]:
    sampler = sampling.sampler
    return {
        "state": "ready",
        "chip": sampler.chip,
        "backend": sampler.backend,
        "library": sampler.library,
        "metrics": {metric.counter: name for metric, name in sampling.chosen},
        "by_time": sampling.by_time,
    }


def _stopped(samples: Samples, path: Path) -> dict[str, Any]:
    np.savez(path, start_ns=samples.start_ns, end_ns=samples.end_ns, **samples.columns)
    return {
        "state": "stopped",
        "file": path.name,
        "samples": len(samples.start_ns),
        "interval_ns": samples.interval_ns,
        "clock": samples.clock,
        "residual_ns": samples.residual_ns,
        "lost": samples.lost.samples,
        "losses": samples.lost.figures(),
    }


def _answers() -> Say:
    """Return a function that writes answers to standard output, for the parent only: libraries print to stderr."""
    answers = os.dup(1)
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        os.write(answers, json.dumps(answer).encode() + b"\n")

    return say


def _die_with_parent() -> None:
    parent = os.getppid()
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return  # then the end of the input ends the process
    if os.getppid() != parent:
        raise SystemExit("the parent is gone")


if __name__ == "__main__":
    main()
