"""What `tbdprof doctor` prints: what works here, what is missing, and what to type."""

from dataclasses import asdict
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tbdprof.collect.gpu.nvidia import Counters, Gpu
from tbdprof.doctor.checks import Examination, Framework, Library
from tbdprof.doctor.methods import Levels, Subject
from tbdprof.facts.units import bytes_text
from tbdprof.hooks import FRAMEWORKS, about
from tbdprof.report.json_text import json_text
from tbdprof.report.plain import plain

WIDTH = 100
Row = tuple[str, str, str]  # subject, answer, reason and command to type
WORDS = {True: "yes", False: "no", None: "unknown"}


def as_json(examination: Examination) -> str:
    """Return an examination as JSON; unknown is null."""
    return json_text(asdict(examination), default=str)


def as_text(examination: Examination, *, width: int = WIDTH, color: bool = False) -> str:
    """Return an examination as a table of lines no wider than `width`."""
    console = Console(file=StringIO(), width=width, no_color=not color, force_terminal=color)
    with console.capture() as capture:
        console.print(render(examination))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def render(examination: Examination) -> Table:
    """Return an examination as a rich table."""
    table = Table("", "here", "", box=None, pad_edge=False, show_header=False)
    table.columns[0].no_wrap = True
    for row in rows(examination):
        table.add_row(*map(Text, plain(row)))  # as Text, in which brackets are not markup
    return table


def rows(examination: Examination) -> list[Row]:
    """Return an examination line by line."""
    host, driver = examination.host, examination.nvidia
    cores = f"{host.cores:g} of {host.machine_cores or '?'} cores"
    return [
        ("Python", host.python, ""),
        ("CPU", host.cpu or "unknown", f"{cores}, {bytes_text(host.memory_bytes)} memory"),
        *(_framework_row(framework) for framework in examination.frameworks),
        *(_library_row(library) for library in examination.libraries),
        ("NVIDIA driver", driver.driver or "no", _driver_remark(driver.cuda, driver.reason)),
        *(_gpu_row(gpu) for gpu in driver.gpus),
        _counter_row(examination.counters),
        ("CUPTI", "yes" if examination.cupti else "no", str(examination.cupti or "")),
        *_subject_row(examination.looked_at),
        *((f"level: {level.name}", WORDS[level.works], level.answer) for level in examination.levels.found),
        _highest_row(examination.levels),
    ]


def _subject_row(looked_at: Subject | None) -> list[Row]:
    """Return which GPU the levels belong to and how to see those of another; empty without a GPU."""
    if looked_at is None or looked_at.name is None:
        return []
    known_as = [] if looked_at.number is None else [f"GPU {looked_at.number} above"]
    several = looked_at.count is not None and looked_at.count > 1
    others = [f"cuda:0 to cuda:{(looked_at.count or 0) - 1}: tbdprof doctor --device cuda:N"] if several else []
    return [("levels of", looked_at.device, "; ".join([looked_at.name, *known_as, *others]))]


def _highest_row(levels: Levels) -> Row:
    """Return the last line: the highest level available here, and how to raise it."""
    verb = "ask for it" if levels.found and levels.highest == levels.found[-1].name else "to raise it"
    return "highest level", levels.highest or "none", f"{verb}: {levels.raised_by}" if levels.raised_by else ""


def _framework_row(framework: Framework) -> Row:
    if framework.reason is None:
        return framework.name, framework.version or "yes", f"GPUs it can use: {framework.gpus}"
    remark = framework.reason + (f"; type: {framework.command}" if framework.command else "")
    return framework.name, f"{framework.version} fails" if framework.version else "no", remark


def _library_row(library: Library) -> Row:
    if library.present:
        return library.name, WORDS[True], ""
    needing = " and ".join(about(name).title for name in FRAMEWORKS if library.name in about(name).libraries)
    return library.name, WORDS[False], f"{needing} needs it; type: {library.command}"


def _driver_remark(cuda: str | None, reason: str | None) -> str:
    return "; ".join(part for part in (f"CUDA up to {cuda}" if cuda else None, reason) if part)


def _gpu_row(gpu: Gpu) -> Row:
    divided = ", divided into instances (MIG)" if gpu.is_divided else ""
    remark = f"compute capability {gpu.compute_capability}, {bytes_text(gpu.memory_bytes)} memory{divided}"
    return f"GPU {gpu.index}", gpu.name, remark


def _counter_row(counters: Counters) -> Row:
    return "GPU performance counters", WORDS[counters.readable], counters.reason or ""
