"""On the machines of a test's cluster: the points of a sweep take no training, but some time."""

import sys

from tbdprof.collect import fresh

_PROGRAM = "import sys; sys.path[:] = {!r}; import slow_points; slow_points.main(sys.argv[1])"
_command = fresh.command


def command(module: str, argument: object) -> list[str]:
    """Return the command of a point, or of anything else as it is."""
    if module != "tbdprof.sweep.point":
        return _command(module, argument)
    return [sys.executable, "-I", "-c", _PROGRAM.format(sys.path), str(argument)]


fresh.command = command
