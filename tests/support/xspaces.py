"""Builds the file of TensorFlow's profiler by hand: planes of an XSpace that the caller makes."""

from typing import Any


class Plane:
    """A plane in the making."""

    def __init__(self, space: Any, name: str) -> None:
        self.plane = space.planes.add(name=name)

    def id_of(self, table: Any, name: str, display: str = "") -> int:
        known = next((key for key, item in table.items() if item.name == name), None)
        key = known or len(table) + 1
        table[key].name = name
        if display:
            table[key].display_name = display
        return key

    def event(self, line: Any, name: str, start_ns: int, length_ns: int, display: str = "", **stats: Any) -> None:
        made = line.events.add(
            metadata_id=self.id_of(self.plane.event_metadata, name, display),
            offset_ps=start_ns * 1000,
            duration_ps=length_ns * 1000,
        )
        self.add_stats(made.stats, stats)

    def add_stats(self, into: Any, stats: dict[str, Any]) -> None:
        for name, value in stats.items():
            stat = into.add(metadata_id=self.id_of(self.plane.stat_metadata, name))
            if isinstance(value, str):
                stat.str_value = value
            else:
                stat.int64_value = value
