"""A point that leaves a copy of a recording after some time, and says when it began and ended.

SLOW_POINTS has the recording and the file to say it in. No point ends while there is that file's name with ".held".
"""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from tbdprof.results.sweep import End
from tbdprof.sweep import point
from tbdprof.sweep.outcome import Outcome

SECONDS = 1.0


def main(text: str) -> None:
    """Take the place of `tbdprof.sweep.point.main`, and do as it does but for the training."""
    recording, log = os.environ["SLOW_POINTS"].split(os.pathsep)

    def slowly(given: dict[str, Any], path: Path) -> Outcome:
        _say(log, "begins", given["name"])
        time.sleep(SECONDS)
        while Path(f"{log}.held").exists():
            time.sleep(0.02)
        shutil.copy(recording, path)
        _say(log, "ends", given["name"])
        return Outcome(End.FINISHED)

    point._outcome = slowly
    point.main(text)


def _say(log: str, event: str, name: str) -> None:
    with Path(log).open("a") as file:
        file.write(json.dumps([event, name, os.environ.get("OMP_NUM_THREADS")]) + "\n")
