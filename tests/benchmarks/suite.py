"""The suite at its default sizes, from recordings: does everything add up, and where does the memory go?

    python tests/benchmarks/suite.py [FOLDER]

Reads MODEL-FRAMEWORK.tbd of every model and framework from a folder (`make suite` writes them), prints a table of the
memory at the peak as docs/suite.md has it, and the cells in which something does not hold. Exits with 1 where a
recording is missing, incomplete, or does not add up.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tbdprof import suite
from tbdprof.analysis.summary import summarize
from tbdprof.errors import RecordingFormatError
from tbdprof.facts.file.reading import load
from tbdprof.facts.units import bytes_text, percent_text
from tbdprof.report.json_report import document
from tbdprof.results.summary import Summary

COLUMNS = ("feature_maps", "weights", "weight_gradients", "dynamic", "workspace")
NAMES = (*(name.replace("_", " ") for name in COLUMNS), "rounding")
HEAD = ("model", "framework", "batch", "peak", *NAMES, "units a second")


def main(folder: Path) -> int:
    """Print the table and what does not hold; return the exit code."""
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * len(HEAD))
    wrong: list[str] = []
    for model in suite.names():
        for framework in suite.frameworks(model):
            path = folder / f"{model}-{framework}.tbd"
            try:
                summary = summarize(load(path))
            except RecordingFormatError as error:
                wrong.append(str(error))
                continue
            print(row(summary))
            wrong += (f"{path.name}: {reason}" for reason in violations(summary))
    print(*wrong or ["every recording is complete and adds up"], sep="\n", file=sys.stderr)
    return 1 if wrong else 0


def row(summary: Summary) -> str:
    """Return a recording's row of the table."""
    run, memory, throughput = summary.recording.run, summary.memory, summary.throughput
    cells = [run.model, run.framework, str(run.batch_size)]
    if memory is None or throughput is None:
        return "| " + " | ".join([*cells, *["not measured"] * (len(HEAD) - len(cells))]) + " |"
    sizes = [*(memory.category_at_peak(name) for name in COLUMNS), memory.rounding_at_peak_bytes or 0]
    shares = (percent_text(size / memory.peak_bytes) for size in sizes)
    rate = f"{throughput.rate.per_s:.4g} {throughput.unit}"
    return "| " + " | ".join([*cells, bytes_text(memory.peak_bytes), *shares, rate]) + " |"


def violations(summary: Summary) -> Iterator[str]:
    """Yield what does not hold in a recording."""
    report: dict[str, Any] = document(summary)
    memory = report["memory"]
    if not report["run"]["complete"]:
        yield f"not complete: {report['run']['ended_by']}"
    if memory is None:
        yield f"no memory: {report['missing'].get('memory')}"
        return
    if memory["mismatches"]:
        yield f"{memory['mismatches']} mismatches: {'; '.join(memory['violations'])}"
    for view in ("roles_at_peak", "roles_max"):
        if memory[view]["unknown"]:
            yield f"unknown {memory[view]['unknown']:,} bytes ({view})"
    total = memory["independent_peak_bytes"]
    if total is not None and sum(memory["at_peak"].values()) != total:
        yield f"the categories add up to {sum(memory['at_peak'].values()):,} bytes, the framework's total is {total:,}"
    spec = suite.find(summary.recording.run.model)
    if summary.parameter_count is None or summary.parameter_count % spec.parameters:
        yield f"{summary.parameter_count} parameters, not {spec.parameters:,}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
