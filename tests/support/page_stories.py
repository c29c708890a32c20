"""Summaries for pages: those of recordings that are kept, and one whose every name means harm."""

from dataclasses import replace
from pathlib import Path

from fake_loop import WHOLE, profiler, train
from report_results import measured

from tbdprof.analysis.pictures import pictures
from tbdprof.analysis.summary import summarize
from tbdprof.facts.file.reading import load
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Strings
from tbdprof.report import terminal
from tbdprof.report.json_report import document
from tbdprof.report.page import recording
from tbdprof.report.page.texts import readable
from tbdprof.results.summary import Summary

FIXTURES = Path(__file__).parents[1] / "fixtures"
SCRIPT = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"
EVIL = f"\"'`{SCRIPT}&lt;<b>\x1b[2J\u202egnp\u200b{{{{7*7}}}}[red]%{{x}}"
SHOWN = EVIL.replace("\x1b", r"\x1b").replace("\u202e", r"\u202e").replace("\u200b", r"\u200b")


def rendered(summary: Summary) -> str:
    """Return the page of a summary."""
    found, shown = pictures(summary.recording), terminal.render(readable(summary), width=118)
    return recording.render(summary, found, document=document(summary), terminal=shown)


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
