"""Read the values that TensorFlow's profiler stores with a plane's events."""

from collections.abc import Collection
from typing import Any


class StatReader:
    """Reads the values of a plane's events.

    There are hundreds of thousands of values, so each name is looked up once, and so is the field with a name's values.
    Values with other names than `only` are passed over, if there are such names.
    """

    def __init__(self, plane: Any, only: Collection[str] | None = None) -> None:
        self._names: dict[int, str] = {key: item.name for key, item in plane.stat_metadata.items()}
        self._wanted = {key for key, name in self._names.items() if only is None or name in only}
        self._fields: dict[int, str] = {}

    def read(self, stats: Any) -> dict[str, Any]:
        """Return the values by name."""
        names, wanted, fields, found = self._names, self._wanted, self._fields, dict[str, Any]()
        for stat in stats:
            key = stat.metadata_id
            if key not in wanted:
                continue
            field = fields.get(key)
            value = getattr(stat, field) if field is not None else None
            if not value:  # the first value of its name, an empty one, or one in another field than the last
                field = fields[key] = stat.WhichOneof("value")
                value = getattr(stat, field)
            found[names[key]] = names[value] if field == "ref_value" else value
        return found
