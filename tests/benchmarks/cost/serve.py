"""A process that times the steps of one framework, on request through a pipe.

    python -m cost.serve DESCRIPTOR FRAMEWORK SIZE THREADS bare|peers|prepared [WINDOW ...]

A bare process has nothing of tbdprof's in it. A prepared one is set up as `tbdprof run` sets it up, with a recording
file, and goes through the windows that are named, in this order.
"""

import sys
import tempfile
from dataclasses import astuple
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

from cost.figures import WAITING
from cost.sizes import SIZES, Size
from cost.stretches import timed
from tbdprof import suite


def serve_bare(connection: Connection, framework: str, size: Size, threads: int) -> None:
    """Time bare steps, and steps under the framework's own profilers."""
    peers = import_module(f"cost.on_{framework}")  # and with it the framework, in the way that a script imports it
    workload = suite.build(size.model, framework, size.request(framework, threads).config("cpu"))
    for _ in range(3):
        workload.step()
    peers.synchronize()

    def step_and_wait() -> None:
        workload.step()
        peers.synchronize()

    connection.send({})  # ready
    while True:
        arm = connection.recv()
        if arm not in peers.PEERS:
            step = step_and_wait if arm == WAITING else workload.step
            connection.send({arm: astuple(timed(step, size.steps, peers.synchronize))})
            continue
        counted: list[float] = []
        with peers.PEERS[arm](counted):
            workload.step()
            found = timed(workload.step, size.watched_steps, peers.synchronize)
        events = counted[0] / (size.watched_steps + 1) if counted else None
        connection.send({arm: (found.wall_s, found.cpu_s, events)})


def serve_prepared(connection: Connection, framework: str, size: Size, threads: int, windows: tuple[str, ...]) -> None:
    """Time the steps of windows, of a process and a loop as `tbdprof run` has them."""
    from cost.prepared import Course

    with tempfile.TemporaryDirectory() as folder, Course(framework, size, threads, windows, Path(folder)) as course:
        connection.send({})  # ready
        while True:
            arm = connection.recv()
            connection.send({name: astuple(each) for name, each in course.stretches(arm).items()})


def main() -> None:
    """Serve until nobody asks any more."""
    descriptor, framework, size, threads, kind, *windows = sys.argv[1:]
    with Connection(int(descriptor)) as connection:
        try:
            if kind == "prepared":
                serve_prepared(connection, framework, SIZES[size], int(threads), tuple(windows))
            else:
                serve_bare(connection, framework, SIZES[size], int(threads))
        except EOFError:
            pass


if __name__ == "__main__":
    main()
