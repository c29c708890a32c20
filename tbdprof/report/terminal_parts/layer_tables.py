"""Time by layer: own times of the kernels in each layer, forward and backward."""

from rich.console import RenderableType

from tbdprof.facts.units import percent_text, seconds_text
from tbdprof.report.terminal_parts.tables import Column, filled, layer_text, rest_text, utilization_text
from tbdprof.results.kernels import LayerTime
from tbdprof.results.summary import Summary

ROWS = 10
COLUMNS = (
    Column("share"),
    Column("utilization"),
    Column("layer", "name"),
    Column("forward"),
    Column("backward"),
    Column("other"),
    Column("calls"),
)


def view(summary: Summary, *, full: bool = False) -> list[RenderableType]:
    """Return the table of time by layer, longest first; `full` shows all layers."""
    layers = summary.layers or ()
    shown, rest = (layers, ()) if full else (layers[:ROWS], layers[ROWS:])
    if not shown:
        return []
    below = [rest_text(len(rest), sum(layer.share for layer in rest))] if rest else []
    return [filled("Time by layer, a step", COLUMNS, map(_cells, shown), below=below)]


def _cells(layer: LayerTime) -> tuple[str, ...]:
    times = (layer.forward_seconds, layer.backward_seconds, layer.other_seconds)
    return (
        percent_text(layer.share),
        utilization_text(layer.utilization),
        layer_text(layer.layer),
        *(seconds_text(seconds * 1e9) if seconds else "" for seconds in times),
        f"{layer.calls:g}",
    )
