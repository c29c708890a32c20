"""Read the values that TensorFlow's profiler stores with a plane's events."""

from typing import Any


class StatReader:
    """Reads the values of a plane's events.

    There are hundreds of thousands of values, so each name is looked up once, and so is the field with a name's values.
    """

    def __init__(self, plane: Any) -> None:
        self._names: dict[int, str] = {key: item.name for key, item in plane.stat_metadata.items()}
        self._fields: dict[int, str] = {}

    def read(self, stats: Any) -> dict[str, Any]:
        """Return the values by name."""
        names, fields, found = self._names, self._fields, dict[str, Any]()
        for stat in stats:
            key = stat.metadata_id
            field = fields.get(key)
            value = getattr(stat, field) if field is not None else None
            if not value:  # the first value of its name, an empty one, or one in another field than the last
                field = fields[key] = stat.WhichOneof("value")
                value = getattr(stat, field)
            found[names[key]] = names[value] if field == "ref_value" else value
        return found
