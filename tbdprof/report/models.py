"""The suite's models, and the frameworks each can run in here."""

import json

from rich.table import Table

from tbdprof import suite
from tbdprof.doctor import availability
from tbdprof.hooks import FRAMEWORKS
from tbdprof.report.terminal import printed

Where = dict[str, str | None]


def where(name: str) -> Where:
    """Return, for each framework, None where a model can run in it here, else why not."""
    carried = suite.frameworks(name)
    return {
        framework: availability(framework) if framework in carried else "not written for it" for framework in FRAMEWORKS
    }


def as_table() -> str:
    """Return the list for a terminal."""
    table = Table()
    for column in ("model", "task", "data set", "unit", "dominant layer", "parameters", *FRAMEWORKS):
        table.add_column(column, justify="right" if column == "parameters" else "left")
    reasons: dict[str, str] = {}
    for name in suite.names():
        spec = suite.find(name)
        facts = (spec.name, spec.task, spec.dataset, spec.unit, spec.dominant_layer, f"{spec.parameters:,}")
        cells = where(name)
        table.add_row(*facts, *("yes" if reason is None else "no" for reason in cells.values()))
        reasons.update({framework: reason for framework, reason in cells.items() if reason is not None})
    return "\n".join([printed(table), *(f"{framework}: {reason}" for framework, reason in reasons.items())])


def as_json() -> str:
    """Return the list as JSON: null where a model can run in a framework, else the reason why not."""
    return json.dumps(
        {name: {"parameters": suite.find(name).parameters, **where(name)} for name in suite.names()}, indent=2
    )
