"""The look of the page's charts: colours that people with colour blindness can tell apart, and what all charts share.

The colours are those of Okabe and Ito ("Color Universal Design", 2008). They can be distinguished in a light and
in a dark page; the page's script sets the colours of text and lines by the theme.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tbdprof.facts.records import Role
from tbdprof.results.memory import CATEGORIES

Spec = dict[str, Any]

ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, RED, PINK, GREY = "#0072B2", "#D55E00", "#CC79A7", "#8A8F98"

OF_CATEGORY = {
    "weights": BLUE,
    "weight_gradients": SKY,
    "feature_maps": ORANGE,
    "workspace": GREEN,
    "dynamic": PINK,
    "unknown": RED,
    "rounding": GREY,
}
OF_PHASE = {
    "data": YELLOW,
    "forward": BLUE,
    "backward": ORANGE,
    "recompute": PINK,
    "update": GREEN,
    "other": GREY,
    "outside": GREY,
}
OF_STATE = {
    "busy": "#B4BBC3",  # neutral, so that the reasons for idleness stand out
    "waiting for data": YELLOW,
    "launching": RED,
    "synchronization": PINK,
    "copies": SKY,
    "communication": BLUE,
}
OF_WINDOW = {"warmup": GREY, "clean": GREEN, "memory": BLUE, "kernels": ORANGE, "sampled": PINK, "counted": SKY}
LEAST_TINT = 0.45  # of the colour that is left in the lightest shade


def of_role(role: Role) -> str:
    """Return the colour of a role: a shade of its category's."""
    for name, members in CATEGORIES.items():
        if role in members:
            place, count = members.index(role), len(members)
            return shade(OF_CATEGORY[name], 1 - (1 - LEAST_TINT) * place / max(count - 1, 1))
    return GREY


def category_of(role: Role) -> str:
    """Return the category of a role."""
    return next(name for name, members in CATEGORIES.items() if role in members)


def shade(colour: str, part: float) -> str:
    """Return a colour mixed with white, of which `part` is the colour."""
    mixed = (round(255 - (255 - int(colour[at : at + 2], 16)) * part) for at in (1, 3, 5))
    return "#" + "".join(f"{each:02x}" for each in mixed)


def chart(data: Sequence[Spec], *, height: int, **layout: Any) -> Spec:
    """Return a chart for Plotly; the page's script adds the theme."""
    shared: Spec = {"height": height, "margin": {"l": 64, "r": 16, "t": 16, "b": 48}, "hovermode": "closest"}
    return {"data": list(data), "layout": shared | layout}


def axis(title: str, **more: Any) -> Spec:
    """Return an axis with a title."""
    return {"title": {"text": title, "standoff": 10}, "automargin": True} | more


def legend() -> Spec:
    """Return a legend that lies above the chart, in one or more lines."""
    return {
        "orientation": "h",
        "yanchor": "bottom",
        "y": 1.02,
        "xanchor": "left",
        "x": 0,
        "traceorder": "normal",
        "maxheight": 1,
    }


def named(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return named values as people read the names."""
    return [(name.replace("_", " "), value) for name, value in values.items()]
