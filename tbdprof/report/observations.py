"""The report of the TBD paper's observations: the answer to each, and the figures it rests on."""

from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Group
from rich.text import Text

from tbdprof.report.json_text import json_text
from tbdprof.report.plain import plain
from tbdprof.report.terminal_parts.tables import printed
from tbdprof.results.observations import Answer, Observation

SCHEMA = 1
SOURCE = "observations of Zhu et al., 2018, arXiv:1803.06905; docs/observations.md defines the tests"
_STYLES = {Answer.YES: "bold green", Answer.NO: "bold red", Answer.UNCLEAR: "bold yellow"}


def render(observations: Sequence[Observation], *, width: int | None = None, color: bool = False) -> str:
    """Return the report as text."""
    lines: list[Text] = []
    for each in plain(list(observations)):
        lines.append(Text.assemble(f"{each.number:>2}  {each.says}: ", (each.answer.value, _STYLES[each.answer])))
        lines += [Text(f"      {figure}", style="dim") for figure in each.figures]
        if each.reason is not None:
            lines.append(Text(f"      {each.reason}", style="dim"))
    return printed(Group(*lines, Text(), Text(SOURCE, style="dim")), width=width, color=color)


def render_json(observations: Sequence[Observation]) -> str:
    """Return the report as one JSON object."""
    return json_text({"schema": SCHEMA, "observations": [asdict(each) for each in observations]})
