"""What a page of HTML holds: its figures with their paths, its texts and its elements."""

import json
from collections import Counter
from html.parser import HTMLParser
from typing import Any

from tbdprof.report.page.figures import leaves
from tbdprof.report.page.texts import shortened

VOID = {"meta", "link", "input", "br"}


class Elements(HTMLParser):
    """The elements of a page, its figures by path, the text outside of scripts and styles, and each script."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags = Counter[str]()
        self.attributes = Counter[str]()
        self.figures: dict[str, Any] = {}
        self.text = ""
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags[tag] += 1
        self.attributes.update(list(values))
        if "data-path" in values:
            value = None if "data-none" in values else json.loads(values["value"] or "")
            path = values["data-path"] or ""
            assert self.figures.setdefault(path, value) == value, f"{path} has two values"
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        elif not self._open or self._open[-1] != "style":
            self.text += data

    @property
    def data(self) -> Any:
        """Return what the page's script reads."""
        return json.loads(self.scripts[1])


def differences(elements: Elements, document: dict[str, Any]) -> list[str]:
    """Return the paths at which the page shows another value than the JSON report."""
    values = dict(leaves(document))
    found = []
    for path, shown in elements.figures.items():
        kept = values.get(path)
        kept = shortened(kept) if isinstance(kept, str) else kept
        if kept != shown:
            found.append(f"{path}: {shown} and not {kept}")
    return found
