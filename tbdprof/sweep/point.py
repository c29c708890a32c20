"""One point of a sweep, in a process of its own: `main` runs it, records it, and writes how it ended.

Processes that would disturb each other wait for each other: that of a sweep which was killed may still be at work.
"""

import json
import os
import platform
import resource
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tbdprof.analysis.summary import summarize
from tbdprof.collect.host_memory import HostUse, killed_for_memory
from tbdprof.errors import DeviceMemoryError, DoesNotFitError, TbdprofError
from tbdprof.facts.file.placing import lock
from tbdprof.facts.recording import Recording
from tbdprof.launch import script as scripts
from tbdprof.launch import suite_run
from tbdprof.launch.request import RunRequest
from tbdprof.loop import ending
from tbdprof.results.sweep import End
from tbdprof.sweep import first_losses
from tbdprof.sweep.outcome import MEMORY_FULL, Outcome, write
from tbdprof.sweep.plan import Script


def main(text: str) -> None:
    """Run a point, and write its recording and its outcome; exit as a shell would after a signal."""
    given = json.loads(text)
    folder, name = Path(given["folder"]), given["name"]
    began = time.monotonic()
    with _alone(given["locks"]):
        try:
            with ending.raised():
                outcome = _outcome(given, folder / f"{name}.tbd")
        except KeyboardInterrupt as error:
            sys.exit(ending.OF_SIGNAL + ending.number(error))
        outcome = replace(outcome, seconds=time.monotonic() - began, machine=platform.node())
        write(outcome, folder / f"{name}.json")


@contextmanager
def _alone(paths: Sequence[str]) -> Iterator[None]:
    """Wait until no other process has locked one of some files, and keep others waiting in the block."""
    with ExitStack() as files:
        for path in sorted(paths):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            files.callback(os.close, handle)
            lock(handle, waits=True)
        yield


def _outcome(given: Mapping[str, Any], path: Path) -> Outcome:
    killed_before = killed_for_memory()
    try:
        if given["kind"] == "script":
            return _script(msgspec.json.decode(given["program"], type=Script), path, killed_before)
        return _with_losses(_model(request := RunRequest.from_json(given["program"]), path), request, given["losses"])
    except (DeviceMemoryError, DoesNotFitError) as error:
        return Outcome(End.OUT_OF_MEMORY, str(error))
    except TbdprofError as error:
        return Outcome(End.FAILED, str(error))
    except Exception as error:  # noqa: BLE001 - the other points go on
        traceback.print_exc()
        return Outcome(End.FAILED, f"{type(error).__name__}: {error}")


def _model(request: RunRequest, path: Path) -> Outcome:
    """Run a model of the suite."""
    use = HostUse()
    recording = suite_run.run(replace(request, force=True), path, _say, tries_smaller=False)
    if recording.run.device != "cpu":
        return _on_device(recording)
    return Outcome(End.FINISHED, took_bytes=use.taken_bytes(), room_bytes=use.room_bytes)


def _with_losses(outcome: Outcome, request: RunRequest, steps: int | None) -> Outcome:
    """Return an outcome with the losses of the first training steps, or with the reason why there are none."""
    if steps is None:
        return outcome
    _say("train without a profiler, for the losses", 0, steps)
    try:
        return replace(outcome, losses=first_losses.losses(request, steps))
    except Exception as error:  # noqa: BLE001 - the recording stands
        return replace(outcome, no_losses=str(error) if isinstance(error, TbdprofError) else repr(error))


def _script(script: Script, path: Path, killed_before: int) -> Outcome:
    """Run a script."""
    use = HostUse()
    ended = scripts.run(
        script.command, path, framework=script.framework, schedule=script.schedule, said=script.said, force=True
    )
    if ended.signals:
        sys.exit(ending.OF_SIGNAL + ended.signals[-1])
    if not ended.paths:
        if killed_for_memory() > killed_before:
            return Outcome(End.OUT_OF_MEMORY, MEMORY_FULL)
        return Outcome(End.FAILED, scripts.not_recorded(path, ended))
    recording = scripts.recorded(ended.paths[0], ended)
    if recording.run.asked_for:
        return Outcome(End.OUT_OF_MEMORY, recording.run.asked_for)
    if ended.code and killed_for_memory() > killed_before:
        return Outcome(End.OUT_OF_MEMORY, MEMORY_FULL)
    if ended.code:
        return Outcome(End.FAILED, f"the script ended with {ended.code}")
    if recording.run.device != "cpu":
        return _on_device(recording)
    if use.counts_addresses:  # the system counts what other processes had resident, and not their addresses
        return Outcome(End.FINISHED, room_bytes=use.room_bytes)
    took_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return Outcome(End.FINISHED, took_bytes=took_bytes, room_bytes=use.room_bytes)


def _on_device(recording: Recording) -> Outcome:
    """Return the outcome of a point on a GPU, with the driver's figures of the memory in use and of all memory."""
    found = summarize(recording).device_memory
    used, there = (None, None) if found is None else (found.used_bytes, found.total_bytes)
    return Outcome(End.FINISHED, took_bytes=used, room_bytes=there)


class _Phases:
    """Prints each phase of a run when it begins."""

    def __init__(self) -> None:
        self._phase = ""

    def __call__(self, phase: str, step: int, of: int | None) -> None:
        if phase != self._phase:
            self._phase = phase
            print(phase, flush=True)  # noqa: T201


_say = _Phases()
