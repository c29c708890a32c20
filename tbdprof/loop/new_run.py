"""The facts of a run that are known at its start."""

import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from tbdprof.collect import host
from tbdprof.facts.records import Run
from tbdprof.loop.version import version


def new_run(model: str, framework: str, **facts: object) -> Run:
    """Return a run with the facts that are known at its start."""
    return Run(
        model=model,
        framework=framework,
        cores=host.usable_cores(),
        affinity_cores=float(host.affinity_cores()),
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        tbdprof_version=version(),
        **facts,  # type: ignore[arg-type]
    )


def script_name() -> str | None:
    """Return the name of the running script without its path, of `python -m` the package's; None if there is none."""
    path = Path(sys.argv[0] if sys.argv else "")
    return (path.parent.name if path.name == "__main__.py" else path.name) or None


def listed(things: object | Sequence[object]) -> list[object]:
    """Return one thing, several or None as a list."""
    if things is None:
        return []
    return list(things) if isinstance(things, list | tuple) else [things]
