"""Summaries for pages: those of recordings that are kept, and one whose every name means harm."""

from dataclasses import replace
from pathlib import Path

from fake_loop import WHOLE, profiler, train
from report_results import NORMALIZATION, measured

from tbdprof.analysis.comparison.facts import Run
from tbdprof.analysis.comparison.sides import compare_runs
from tbdprof.analysis.pictures import pictures
from tbdprof.analysis.summary import summarize
from tbdprof.facts.file.reading import load
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Strings
from tbdprof.report import compare as reports
from tbdprof.report import terminal
from tbdprof.report.json_report import document
from tbdprof.report.page import comparison as page_of_comparison
from tbdprof.report.page import recording
from tbdprof.report.page import sweep as page_of_sweep
from tbdprof.report.page.texts import readable
from tbdprof.report.sweep import document as document_of_sweep
from tbdprof.results.compare import Comparison
from tbdprof.results.kernels import LowUtilization
from tbdprof.results.memory import CATEGORIES
from tbdprof.results.summary import Summary
from tbdprof.results.sweep import End, PointFigures, Sweep, SweepPoint
from tbdprof.results.time import Rate

FIXTURES = Path(__file__).parents[1] / "fixtures"
SCRIPT = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"
EVIL = f"\"'`{SCRIPT}&lt;<b>\x1b[2J\u202egnp\u200b{{{{7*7}}}}[red]%{{x}}"
SHOWN = EVIL.replace("\x1b", r"\x1b").replace("\u202e", r"\u202e").replace("\u200b", r"\u200b")


def rendered(summary: Summary) -> str:
    """Return the page of a summary."""
    found, shown = pictures(summary.recording), terminal.render(readable(summary), width=118)
    return recording.render(summary, found, document=document(summary), terminal=shown)


def comparison_of(*names: str) -> Comparison:
    """Return the comparison of recordings of `tests/fixtures`."""
    groups = [[Run(name, fixture(name))] for name in names]
    return compare_runs(groups, anyway=True)


def compared(comparison: Comparison | None = None) -> str:
    """Return the page of a comparison, by default of two frameworks' recordings."""
    found = comparison or comparison_of("format-5-torch.tbd", "format-5-mxnet.tbd")
    shown = reports.render(readable(found), width=118)
    return page_of_comparison.render(found, document=reports.document(found), terminal=shown)


def sweep_of(name: str = "resnet50") -> Sweep:
    """Return a sweep of two frameworks and two batches, one of which did not fit."""
    figures = PointFigures(
        rate=Rate(40.0, (36.0, 48.0)),
        unit="images",
        step_seconds=0.1,
        peak_bytes=3 * 2**30,
        category_bytes={category: place * 2**28 for place, category in enumerate(CATEGORIES)},
        busy=0.5,
        fp32=0.25,
        drifted=False,
        complete=True,
        model=name,
        framework=name,
        device=name,
        on_gpu=True,
        precision="fp32",
        threads=2,
        low_utilization=LowUtilization(0.5, 0.9, (replace(NORMALIZATION, name=name),), ()),
        cpu=0.1,
        exposed=None,
    )
    points = []
    for framework in ("torch", "mxnet"):
        for size in (4, 8):
            settings: dict[str, str | int] = {"model": name, "framework": framework, "batch_size": size}
            full = framework == "mxnet" and size == 8
            end, found = (End.OUT_OF_MEMORY, None) if full else (End.FINISHED, figures)
            points.append(
                SweepPoint(f"{name}-{framework}-{size}", settings, end, name if full else None, 1.0, "m", found)
            )
    return Sweep(name, ("model", "framework", "batch_size"), "batch_size", tuple(points), (), None)


def swept(name: str = "resnet50") -> str:
    """Return the page of a sweep."""
    sweep = sweep_of(name)
    return page_of_sweep.render([sweep], [document_of_sweep(sweep)], ["s"])


def fixture(name: str) -> Summary:
    """Return the summary of a recording of `tests/fixtures`."""
    return summarize(load(FIXTURES / name))


def hostile(name: str = EVIL) -> Summary:
    """Return a summary with results of all kinds, in which each free text is this name."""
    prof, hook = profiler(WHOLE)
    with prof:
        train(prof, hook.clock, 20)
    found: Recording = prof.recording
    texts = found.strings.since(0)
    found.strings = Strings(tuple(text if text.startswith(("[", "{", "cpu")) else name + text for text in texts))
    harm = dict.fromkeys(("model", "framework_version", "device_name", "unit", "script", "ended_by"), name)
    options = {"precision_flags": {name: name}, "options": {name: name}}
    found.run = replace(found.run, **harm, **options, complete=False)  # type: ignore[arg-type]
    found.missing |= {name: name}
    summary = measured(summarize(found))
    changes = {
        "groups": tuple(replace(each, name=name, operator=name, layers=(name,)) for each in summary.groups or ()),
        "layers": tuple(replace(each, layer=name) for each in summary.layers or ()),
        "verdict": None if summary.verdict is None else replace(summary.verdict, sentence=name, advice=(name,)),
    }
    return replace(summary, recording=found, **changes)  # type: ignore[arg-type]
