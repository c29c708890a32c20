"""Memory on the page: over time with what is live at each instant, and the breakdown at the peak."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from tbdprof.facts.records import Role
from tbdprof.facts.units import bytes_text
from tbdprof.report.page.figures import Figures
from tbdprof.report.page.look import GREY, OF_CATEGORY, OF_PHASE, Spec, category_of, chart, of_role
from tbdprof.report.page.tables import Column, Table, figure, number, table, word
from tbdprof.report.page.texts import in_chart, shortened
from tbdprof.report.terminal_parts.tables import layer_text, role_text
from tbdprof.results.memory import CATEGORIES, Holding
from tbdprof.results.pictures import Band, MemoryOverTime

MOST_LAYERS = 60  # of a role, in the breakdown
MOST_TENSORS = 12  # of a layer
TOP_TENSORS = 20
ROUNDING = "rounding"


def series(found: MemoryOverTime) -> Spec:
    """Return what the page's script draws of memory over time, and lists at each instant; times are milliseconds."""
    origin = _origin(found)
    roles = sorted(found.roles, key=lambda role: (list(CATEGORIES).index(category_of(role)), role))
    texts: dict[str, int] = {}
    return {
        "time": _millis(found.time_ns, origin),
        "peak": found.peak,
        "roles": [_role(found, role) for role in roles],
        "categories": [
            {"name": name.replace("_", " "), "key": name, "color": color} for name, color in OF_CATEGORY.items()
        ],
        "rounding": found.rounding.tolist(),
        "steps": [_band(band, origin) for band in found.steps],
        "phases": [_band(band, origin) | {"color": OF_PHASE[band.name]} for band in found.phases],
        "blocks": _blocks(found, texts),
        "texts": [shortened(text) for text in texts],
        "unlisted": {
            "count": found.unlisted_blocks.tolist() if len(found.listed.holdings) < found.blocks else None,
            "bytes": {role_text(role): sizes.tolist() for role, sizes in found.unlisted_bytes.items()},
        },
        "unreported": {role_text(role): sizes.tolist() for role, sizes in found.unreported_bytes.items()},
    }


def _said(found: MemoryOverTime) -> str:
    """Return how the picture is thinned."""
    kept = len(found.time_ns)
    if kept < found.events:
        parts = "of equal parts the one with the most and the one with the fewest bytes, and the peak"
        thinned = f"Drawn are {kept:,} of {found.events:,} events: {parts}."
    else:
        thinned = f"All {found.events:,} events are drawn."
    listed = len(found.listed.holdings)
    if listed < found.blocks:
        thinned += f" The {listed:,} largest of {found.blocks:,} tensors are listed one by one, the others as sums."
    return thinned


def _origin(found: MemoryOverTime) -> int:
    return min([band.start_ns for band in found.steps] + [int(found.time_ns[0])])


def _role(found: MemoryOverTime, role: Role) -> Spec:
    category = category_of(role)
    values = found.roles[role].tolist()
    return {"name": role_text(role), "category": category, "color": of_role(role), "bytes": values}


def _band(band: Band, origin: int) -> Spec:
    return {"name": band.name, "start": (band.start_ns - origin) / 1e6, "end": (band.end_ns - origin) / 1e6}


def _millis(time_ns: Any, origin: int) -> list[float]:
    return [each / 1e6 for each in (time_ns - origin).tolist()]


def _blocks(found: MemoryOverTime, texts: dict[str, int]) -> Spec:
    """Return the listed blocks by column; a text is its place in `texts`, -1 for none."""
    held = found.listed.holdings

    def index(text: str | None) -> int:
        return -1 if text is None else texts.setdefault(text, len(texts))

    return {
        "first": found.listed.first.tolist(),
        "last": found.listed.last.tolist(),
        "bytes": [each.size_bytes for each in held],
        "role": [index(role_text(each.role)) for each in held],
        "name": [index(each.name) for each in held],
        "layer": [index(None if each.layer is None else layer_text(each.layer)) for each in held],
        "operator": [index(each.operator) for each in held],
        "shape": [index(each.shape) for each in held],
    }


def breakdown(found: MemoryOverTime) -> Spec:
    """Return the chart of the peak by category, role, layer and tensor; each part's children add up to it."""
    nodes = _Nodes()
    live = np.flatnonzero((found.listed.first <= found.peak) & (found.peak <= found.listed.last)).tolist()
    held: dict[Role, dict[str, list[Holding]]] = defaultdict(lambda: defaultdict(list))
    for block in live:
        each = found.listed.holdings[block]
        held[each.role][layer_text(each.layer)].append(each)
    total = int(found.total[found.peak])
    root = nodes.add("", "peak", total, GREY)
    sizes = {role: int(values[found.peak]) for role, values in found.roles.items() if values[found.peak]}
    for name, members in CATEGORIES.items():
        of_category = sum(sizes.get(role, 0) for role in members)
        if of_category:
            above = nodes.add(root, name.replace("_", " "), of_category, OF_CATEGORY[name])
            for role in members:
                if role in sizes:
                    inside = nodes.add(above, role_text(role), sizes[role], of_role(role))
                    _layers(nodes, inside, held[role], sizes[role], of_role(role))
    rounding = int(found.rounding[found.peak])
    if rounding:
        nodes.add(root, ROUNDING, rounding, OF_CATEGORY[ROUNDING])
    return chart(
        [nodes.trace()],
        height=520,
        margin={"l": 4, "r": 4, "t": 4, "b": 4},
        uniformtext={"minsize": 10, "mode": "hide"},
    )


class _Nodes:
    """The parts of a hierarchy, in Plotly's columns."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.parents: list[str] = []
        self.labels: list[str] = []
        self.values: list[int] = []
        self.colors: list[str] = []

    def add(self, parent: str, label: str, size: int, color: str) -> str:
        """Add a part and return its identity."""
        self.ids.append(str(len(self.ids)))
        self.parents.append(parent)
        self.labels.append(in_chart(label))
        self.values.append(size)
        self.colors.append(color)
        return self.ids[-1]

    def trace(self) -> Spec:
        """Return the trace; the text beside each part is its size."""
        return {
            "type": "icicle",
            "ids": self.ids,
            "parents": self.parents,
            "labels": self.labels,
            "values": self.values,
            "text": [bytes_text(size) for size in self.values],
            "branchvalues": "total",
            "marker": {"colors": self.colors, "line": {"width": 0.5}},
            "textinfo": "label+text",
            "hovertemplate": "%{label}<br>%{text}<br>%{percentRoot:.1%} of the peak<extra></extra>",
            "tiling": {"orientation": "h", "pad": 1},
            "pathbar": {"visible": True},
            "maxdepth": 4,
            "sort": False,
        }


def _layers(nodes: _Nodes, above: str, held: dict[str, list[Holding]], size: int, color: str) -> None:
    """Add the layers of a role, the largest first; what is in none of the shown ones is a part of its own."""
    sums = {layer: sum(each.size_bytes for each in blocks) for layer, blocks in held.items()}
    shown = sorted(sums, key=lambda layer: -sums[layer])[:MOST_LAYERS]
    for layer in shown:
        inside = nodes.add(above, layer, sums[layer], color)
        _tensors(nodes, inside, held[layer], color)
    rest = size - sum(sums[layer] for layer in shown)
    if rest:
        left = len(sums) - len(shown)
        label = f"{left} more layers, and smaller tensors" if left else "smaller tensors, or no reported block"
        nodes.add(above, label, rest, color)


def _tensors(nodes: _Nodes, above: str, blocks: list[Holding], color: str) -> None:
    largest = sorted(blocks, key=lambda each: -each.size_bytes)
    for each in largest[:MOST_TENSORS]:
        nodes.add(above, _title(each), each.size_bytes, color)
    rest = largest[MOST_TENSORS:]
    if rest:
        nodes.add(above, f"{len(rest)} smaller", sum(each.size_bytes for each in rest), color)


def _title(held: Holding) -> str:
    parts = (held.name, None if held.name else held.operator, held.shape)
    return " ".join(part for part in parts if part) or role_text(held.role)


def _peak_rows(found: MemoryOverTime) -> Iterator[tuple[str, str, int]]:
    """Yield the category, the role and the bytes of each role at the peak: the breakdown as a table."""
    for name, members in CATEGORIES.items():
        for role in members:
            if role in found.roles and found.roles[role][found.peak]:
                yield name.replace("_", " "), role_text(role), int(found.roles[role][found.peak])
    yield ROUNDING, "", int(found.rounding[found.peak])


def beside(found: MemoryOverTime | None, figures: Figures) -> dict[str, Any]:
    """Return what the part about memory shows beside its charts."""
    return {
        "memory_said": None if found is None else _said(found),
        "categories": _categories(figures),
        "peak_table": None if found is None else _peak(found),
        "tensors": _largest(figures),
        "memory_layers": _memory_layers(figures),
    }


def _categories(figures: Figures) -> Table | None:
    if figures.get("/memory") is None:
        return None
    total = sum(value or 0 for value in figures.at("/memory/at_peak").values())
    columns = (Column("category", False, "Category"), Column("at the peak", True), Column("largest ever", True))
    rows = []
    for name in (*CATEGORIES, "rounding"):
        size = figures.get(f"/memory/at_peak/{name}") or 0
        at_peak = figure(figures, f"/memory/at_peak/{name}", size / total if total else None)
        rows.append((word(name.replace("_", " ")), at_peak, figure(figures, f"/memory/max_per_category/{name}")))
    return table("Memory by category", columns, rows, total=len(rows))


def _peak(found: MemoryOverTime) -> Table:
    columns = (Column("category", False, "Category"), Column("role", False, "Role"), Column("at the peak", True))
    rows = [(word(name), word(role), number(size, bytes_text(size))) for name, role, size in _peak_rows(found)]
    return table("Memory at the peak by category and role", columns, rows, total=len(rows))


def _largest(figures: Figures) -> Table | None:
    found = figures.get("/memory/top_at_peak")
    if not found:
        return None
    columns = (
        *(Column("bytes", True), Column("role", False, "Role"), Column("name"), Column("layer", False, "Layer")),
        *(Column("operator", False, "Operator"), Column("shape")),
    )
    rows = [
        (
            figure(figures, f"/memory/top_at_peak/{place}/bytes", each["bytes"] / (found[0]["bytes"] or 1)),
            word(each["role"].replace("_", " ")),
            word(each["name"]),
            word("" if each["layer"] is None else layer_text(each["layer"])),
            word(each["operator"]),
            word("" if each["shape"] is None else str(each["shape"])),
        )
        for place, each in enumerate(found[:TOP_TENSORS])
    ]
    return table("The largest tensors at the peak", columns, rows, total=len(found))


def _memory_layers(figures: Figures) -> Table | None:
    found = figures.get("/memory/by_layer")
    if not found:
        return None
    most = found[0]["bytes"] or 1
    rows = (
        (word(layer_text(each["layer"])), figure(figures, f"/memory/by_layer/{place}/bytes", each["bytes"] / most))
        for place, each in enumerate(found)
    )
    columns = (Column("layer", False, "Layer"), Column("at the peak", True))
    return table("Memory at the peak by layer", columns, rows, total=len(found), can_filter=True)
