"""Markers: points in Python code, placed among the events of torch's profiler as numbered ranges."""

import itertools
import os
from collections.abc import Callable

import torch
from torch._C._profiler import _RecordFunctionFast

from tbdprof.hooks.on_torch.session.events import Mark

MARKER = "##tbd:"
WHOLE = f"{MARKER}whole"  # the range around a window


class Markers:
    """Places markers among the profiler's events while it is on, in the process that turned it on."""

    def __init__(self) -> None:
        self.marks: dict[int, Mark] = {}
        self.on = False
        self._pid = 0
        self._numbers = itertools.count()

    def turn_on(self) -> None:
        """Place markers from now on, in this process."""
        self.on, self._pid = True, os.getpid()

    def is_on(self) -> bool:
        """Return whether markers are placed here and now."""
        # While the compiler traces, a hook must leave nothing in the graph.
        return not torch.compiler.is_compiling() and self.on and os.getpid() == self._pid

    def place(self, mark: Mark, inside: Callable[[], object] | None = None) -> None:
        """Place a marker, and call `inside` within it."""
        if not self.is_on():
            return
        with _RecordFunctionFast(self.text_of(mark)):
            if inside is not None:
                inside()

    def text_of(self, mark: Mark) -> str:
        """Return the name of the range that stands for a marker, in this window."""
        number = next(self._numbers)
        self.marks[number] = mark
        return f"{MARKER}{number}"

    def place_text(self, text: str) -> None:
        """Place a marker by the name of its range, any number of times; call it only where `is_on`."""
        with _RecordFunctionFast(text):
            pass

    def take(self) -> dict[int, Mark]:
        """Return the markers placed so far and forget them."""
        marks, self.marks = self.marks, {}
        return marks
