"""The suite's models: where each can run here, and tables like II and III of the TBD paper.

The paper is Zhu et al., "Benchmarking and Analyzing Deep Neural Network Training", IISWC 2018, arXiv:1803.06905.
"""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tbdprof import suite
from tbdprof.doctor.checks import availability
from tbdprof.hooks import FRAMEWORKS
from tbdprof.report.plain import plain
from tbdprof.report.terminal_parts.tables import Column, filled, printed
from tbdprof.suite.data.datasets import DATASETS, Dataset
from tbdprof.suite.workload import Spec

SUITE = "The suite: models, data sets, dominant layers and the frameworks they are written for here"
DATA = "The data sets"
BATCH = "batch, CPU / GPU"

Where = dict[str, str | None]


def where(name: str) -> Where:
    """Return, for each framework, None if a model can run in it here, otherwise the reason why not."""
    carried = suite.frameworks(name)
    return {
        framework: availability(framework) if framework in carried else "not written for it" for framework in FRAMEWORKS
    }


def as_table() -> str:
    """Return the list for a terminal."""
    table = Table()
    for column in ("model", "task", "data set", "parameters", BATCH, *FRAMEWORKS):
        whole = column not in ("task", "data set", BATCH)
        table.add_column(column, justify="right" if column in ("parameters", BATCH) else "left", no_wrap=whole)
    reasons: dict[str, str] = {}
    for name in suite.names():
        spec = suite.find(name)
        batch = f"{spec.default_batch['cpu']} / {spec.default_batch['cuda']}"
        facts = (spec.name, spec.task, spec.dataset, f"{spec.parameters:,}", batch)
        cells = where(name)
        table.add_row(*facts, *("yes" if reason is None else "no" for reason in cells.values()))
        reasons.update({framework: reason for framework, reason in cells.items() if reason is not None})
    return "\n".join([printed(table), *(f"{framework}: {plain(reason)}" for framework, reason in reasons.items())])


def as_json() -> str:
    """Return the list as JSON: null if a model can run in a framework, otherwise the reason why not."""
    return json.dumps({spec.name: _listed(spec) for spec in _specs()}, indent=2)


def _listed(spec: Spec) -> dict[str, Any]:
    return {"parameters": spec.parameters, "default_batch": dict(spec.default_batch), **where(spec.name)}


def overview_as_text() -> str:
    """Return the models and their data sets for a terminal, like the TBD paper's tables II and III."""
    specs = _specs()
    models = filled(
        SUITE,
        [
            Column(name, "text")
            for name in ("application", "model", "layers", "dominant layer", "frameworks", "data set")
        ],
        [
            (
                spec.task,
                spec.title,
                spec.layers,
                spec.dominant_layer,
                ", ".join(suite.frameworks(spec.name)),
                spec.dataset,
            )
            for spec in specs
        ],
    )
    data = filled(
        DATA,
        [Column(name, "text") for name in ("data set", "samples", "size", "special")],
        [(each.name, each.samples, each.size, each.special) for each in _datasets(specs)],
    )
    return printed(Group(models, Text(), data))


def overview_as_json() -> str:
    """Return the models and their data sets as JSON; null if table III does not have a value."""
    specs = _specs()
    return json.dumps(
        {"models": [_model(spec) for spec in specs], "datasets": [_data(each) for each in _datasets(specs)]}, indent=2
    )


def _specs() -> list[Spec]:
    return [suite.find(name) for name in suite.names()]


def _datasets(specs: Sequence[Spec]) -> list[Dataset]:
    """Return the data sets of some models in the order of table III, then those not in that table."""
    used = dict.fromkeys(spec.dataset for spec in specs)
    known = [each for name, each in DATASETS.items() if name in used]
    return [*known, *(Dataset(name, "", "") for name in used if name not in DATASETS)]


def _model(spec: Spec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "title": spec.title,
        "application": spec.task,
        "layers": spec.layers,
        "dominant_layer": spec.dominant_layer,
        "frameworks": list(suite.frameworks(spec.name)),
        "dataset": spec.dataset,
    }


def _data(each: Dataset) -> dict[str, str | None]:
    texts = {name: getattr(each, name) for name in ("name", "samples", "size", "special")}
    return {name: text or None for name, text in texts.items()}
