"""The figures of a run as a flat dictionary, for loggers such as TensorBoard, MLflow and Weights & Biases."""

import math
from dataclasses import fields

from tbdprof.report.json_report import document
from tbdprof.results.compare import figures_of
from tbdprof.results.summary import Summary


def figures(summary: Summary, *, rows: bool = False) -> dict[str, float]:
    """Return the numbers of the JSON report by their paths, as `tbdprof compare --fail-if` takes them.

        {"throughput.samples_per_s": 41.5, "memory.at_peak.weights": 102228128, …}

    What was not measured is left out. With `rows` there are also those in lists: `kernels[addmm forward].seconds`.
    """
    found = figures_of(document(summary), rows=rows).items()
    return {path: value for path, value in found if value is not None and math.isfinite(value)}


class FlatSummary(Summary):
    """All results of a run, which also gives its figures as a flat dictionary."""

    def figures(self, *, rows: bool = False) -> dict[str, float]:
        """Return the numbers of the JSON report by their paths; with `rows` also those in lists, such as kernels."""
        return figures(self, rows=rows)


def flat(summary: Summary) -> FlatSummary:
    """Return the same results as a summary that gives its figures."""
    return FlatSummary(**{each.name: getattr(summary, each.name) for each in fields(summary)})
