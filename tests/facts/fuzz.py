"""Open thousands of damaged and hostile recordings, and count what comes of it.

    python tests/facts/fuzz.py [--mutants 20000] [--first SEED]

Each mutant of a recording in `tests/fixtures` is loaded, or salvaged if it is damaged. It is then summarized and
rendered, in short, in full or as JSON, or it is exported. Exits with 1 if one of them ended in a traceback or a warning
of Python's, took more than 5 s of CPU, changed a file, or gave another report without a warning, or if all of it took
more than 1 GB. Prints the count of outcomes.
"""

import argparse
import json
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "support")]  # for `make fuzz`, which is not run by pytest

# ruff: noqa: E402
from mutants import mutant

from tbdprof.analysis.summary import summarize
from tbdprof.errors import TbdprofError
from tbdprof.facts.file.reading import load
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.recording import DAMAGED, Recording
from tbdprof.report import export, json_report, terminal

MOST_CPU_S = 5
MEMORY_DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None
MOST_BYTES = 1_000_000_000
SOURCES = sorted((TESTS / "fixtures").glob("format-*.tbd"))
REFUSED, SAME, CHANGED, WARNED, SALVAGED = "refused", "same report", "forged report", "warned", "salvaged"
DEFECTS = ("traceback", "hang", "file changed", "other report without a warning")
Facts = tuple[Any, ...]


class Hang(BaseException):
    """Raised where a mutant takes too long."""


def windows_of(recording: Recording) -> tuple[tuple[str, str, Facts], ...]:
    """Return the windows of a recording with their tables."""
    return tuple(
        (w.name, w.state, tuple((kind, rows.tobytes()) for kind, rows in sorted(w.tables.items())))
        for w in recording.windows
    )


def facts(recording: Recording) -> Facts:
    """Return what a report can depend on."""
    return (
        recording.run,
        windows_of(recording),
        tuple(recording.strings.since(0)),
        tuple(sorted(recording.missing.items())),
    )


def use(recording: Recording, folder: Path, way: int) -> None:
    """Do with a recording one of the things that a user can; all of them in four calls with different numbers."""
    if way % 4 == 0:
        export.write(recording, folder / "tables", "sqlite" if way % 8 else "csv")
    elif way % 4 == 1:
        json.loads(json_report.render(summarize(recording)))
    else:
        terminal.render(summarize(recording), color=False, full=way % 4 == 2).encode()


def outcome(path: Path, family: str, original: Facts, scratch: Path, way: int) -> str:
    """Return what comes of opening a mutant."""
    try:
        recording = load(path)
    except TbdprofError:
        return _salvaged(path, family, original, scratch, way)
    if facts(recording) == original:
        return SAME
    use(recording, scratch, way)
    if family == "forged":
        return CHANGED
    return WARNED if RemarkOn.CHECKSUMS in recording.missing else "other report without a warning"


def _salvaged(path: Path, family: str, original: Facts, scratch: Path, way: int) -> str:
    """Return what comes of salvaging a mutant: each window that is not left out is as it was."""
    try:
        recording = load(path, salvage=True)
    except TbdprofError:
        return REFUSED
    use(recording, scratch, way)
    kept = [window for window in windows_of(recording) if window[1] != DAMAGED]
    is_forged = family == "forged" or RemarkOn.CHECKSUMS in recording.missing
    return SALVAGED if is_forged or {*kept} <= {*original[1]} else "other report without a warning"


@contextmanager
def limited() -> Iterator[None]:
    """Raise Hang in the block when it has taken too much CPU time."""

    def give_up(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def snapshot(folder: Path) -> dict[str, object]:
    """Return the names and contents of all that is in a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else path.lstat().st_mode
        for path in sorted(folder.rglob("*"))
    }


def fuzz(seeds: range, note: Callable[[int, str], None] = lambda seed, text: None) -> Counter[str]:
    """Open the mutants of these numbers and return how often each outcome came; `note` hears of the defects."""
    originals = {source: facts(load(source)) for source in SOURCES}
    counts: Counter[str] = Counter()
    for seed in seeds:
        with TemporaryDirectory(dir=MEMORY_DISK) as name:
            folder, scratch = Path(name) / "target", Path(name) / "scratch"
            folder.mkdir()
            (folder / "victim.txt").write_text("precious")
            source = SOURCES[seed % len(SOURCES)]
            family = mutant(source, folder / "a.tbd", seed)
            before = snapshot(folder)
            scratch.mkdir()
            try:
                with limited():
                    found = outcome(folder / "a.tbd", family, originals[source], scratch, seed // len(SOURCES))
            except Hang:
                found = "hang"
            except Exception:  # noqa: BLE001 - whatever it is, it is the defect looked for
                found = "traceback"
                note(seed, traceback.format_exc(limit=-3))
            if snapshot(folder) != before:
                found = "file changed"
            if found in DEFECTS:
                note(seed, f"{source.name}, {family}: {found}")
            counts[found] += 1
            shutil.rmtree(scratch)
    return counts


def main() -> int:
    """Fuzz as the command line says, print the counts, and return 1 if there were defects."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()

    def note(seed: int, text: str) -> None:
        sys.stdout.write(f"mutant {seed}: {text}\n")

    warnings.simplefilter("error")  # as pytest does: a warning on stderr says that a figure is not one
    counts = fuzz(range(given.first, given.first + given.mutants), note)
    for found, count in sorted(counts.items()):
        sys.stdout.write(f"{count:7d}  {found}\n")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(f"{most / 1e6:7.0f}  MB of memory at most\n")
    return 1 if most > MOST_BYTES or any(counts[defect] for defect in DEFECTS) else 0


if __name__ == "__main__":
    sys.exit(main())
