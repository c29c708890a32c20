"""Environment variables of this process that are set for a while."""

import os


class Environment:
    """Sets variables until they are put back."""

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}

    def set(self, name: str, value: str) -> None:
        """Set a variable; keep the value that it had before its first setting."""
        self._before.setdefault(name, os.environ.get(name))
        os.environ[name] = value

    def put_back(self) -> None:
        """Restore every variable that was set to its value before."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before.clear()
