"""Variables of this process's environment, set for a while."""

import os


class Environment:
    """Sets variables until they are put back."""

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}

    def set(self, name: str, value: str) -> None:
        """Set a variable; what it was before its first setting is kept."""
        self._before.setdefault(name, os.environ.get(name))
        os.environ[name] = value

    def put_back(self) -> None:
        """Have every variable that was set as it was before."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before.clear()
