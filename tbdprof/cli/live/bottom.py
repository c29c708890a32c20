"""The last lines of a terminal for a view, while a program writes to the lines above as if the terminal had no others.

A terminal can scroll a part of its lines alone (DECSTBM, https://vt100.net/docs/vt510-rm/DECSTBM.html). So the program
keeps its own standard output, byte for byte, and nothing stands between it and the terminal.
"""

import io
import os
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console, RenderableType

LEAST_LINES = 6  # that a program is left with; a lower terminal shows no view
SAVE, RESTORE = "\x1b7", "\x1b8"  # the cursor and the colours
WHOLE = "\x1b[r"


class Bottom:
    """Draws at the end of a terminal; `close` gives the lines back."""

    def __init__(self, stream: TextIO, height: int) -> None:
        """Take a stream that is a terminal, and how many lines a view has at most."""
        self._stream = stream
        self._terminal = stream.fileno()
        self._height = height
        self._taken: os.terminal_size | None = None  # the size for which the lines were taken

    def draw(self, content: RenderableType) -> None:
        """Show something in place of what was shown before; in a terminal that is too low, nothing."""
        size = os.get_terminal_size(self._terminal)
        if size.lines < self._height + LEAST_LINES:
            self.close()
            return
        taking = "" if size == self._taken else self._take(size)
        self._taken = size
        lines = _lines(content, size.columns - 1, self._height)
        self._write(f"{taking}{SAVE}{self._placed(lines, size.lines)}{RESTORE}")

    def close(self) -> None:
        """Clear the lines, and let the terminal scroll as a whole again."""
        if self._taken is not None:
            blank = self._placed([""] * self._height, os.get_terminal_size(self._terminal).lines)
            self._write(f"{SAVE}{WHOLE}{blank}{RESTORE}")
            self._taken = None

    def _take(self, size: os.terminal_size) -> str:
        """Return what moves the program's lines up, its cursor with them, and keeps the last lines from scrolling."""
        make_room = "\x1bD" * self._height + f"\x1b[{self._height}A"
        return f"{make_room}{SAVE}\x1b[1;{size.lines - self._height}r{RESTORE}"

    def _placed(self, lines: Sequence[str], bottom: int) -> str:
        first = bottom - self._height + 1
        padded = [*lines, *[""] * (self._height - len(lines))]
        return "".join(f"\x1b[{place};1H\x1b[2K{line}" for place, line in enumerate(padded, first))

    def _write(self, text: str) -> None:
        """Write in one piece, so that what the program writes meanwhile comes before or after it."""
        os.write(self._terminal, text.encode(self._stream.encoding, self._stream.errors or "strict"))


def _lines(content: RenderableType, width: int, height: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, highlight=False, markup=False, emoji=False)
    console.print(content)
    return out.getvalue().splitlines()[:height]
