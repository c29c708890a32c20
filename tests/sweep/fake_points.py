"""`tbdprof sweep` with points that take no training: each leaves a copy of a recording, as its settings say.

    python fake_points.py RECORDING LOG [words of tbdprof sweep]

Of a script `fake --batch {batch}`, batch 13 fails, 14 dies without a word, 20 and more run out of memory, and 7 waits
for a file named `go` in the current folder. Each point that begins adds its name to LOG.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

from tbdprof.collect import fresh
from tbdprof.results.sweep import End
from tbdprof.sweep.outcome import Outcome, write

WAITS, FAILS, DIES, TOO_LARGE = 7, 13, 14, 20


def main(text: str) -> None:
    """Take the place of `tbdprof.sweep.point.main`."""
    given = json.loads(text)
    recording, log = os.environ["FAKE_POINTS"].split(os.pathsep)
    folder, name = Path(given["folder"]), given["name"]
    batch = int(json.loads(given["program"])["command"][-1])
    with Path(log).open("a") as file:
        file.write(f"{name}\n")
    while batch == WAITS and not Path("go").exists():
        time.sleep(0.02)
    if batch == DIES:
        print("no word", flush=True)
        os._exit(3)
    if batch == FAILS:
        outcome = Outcome(End.FAILED, "unlucky")
    elif batch >= TOO_LARGE:
        outcome = Outcome(End.OUT_OF_MEMORY, "none left")
    else:
        shutil.copy(recording, folder / f"{name}.tbd")
        outcome = Outcome(End.FINISHED, None, 1.0, "here", batch * 100, 2000)
    write(outcome, folder / f"{name}.json")


def command(_: str, argument: object) -> list[str]:
    """Return the command of a point."""
    program = f"import sys; sys.path[:] = {sys.path!r}; import fake_points; fake_points.main(sys.argv[1])"
    return [sys.executable, "-I", "-c", program, str(argument)]


if __name__ == "__main__":
    recording, log, *words = sys.argv[1:]
    os.environ["FAKE_POINTS"] = os.pathsep.join((recording, log))
    fresh.command = command
    sys.argv[1:] = ["sweep", *words]
    from tbdprof.cli.main import main as typed

    typed()
