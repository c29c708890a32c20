"""A pseudo-terminal in which a function runs in a forked process, and a screen that shows what came of it."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable

import pyte

LINES, COLUMNS = 24, 100
PATIENCE_S = 30.0


class Terminal:
    """Runs a function that returns an exit code; its three standard streams are a terminal of its own."""

    def __init__(self, act: Callable[[], int], *, lines: int = LINES, columns: int = COLUMNS) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=1000)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.pid, self.handle = pty.fork()
        if not self.pid:
            code = 70
            try:
                for number, stream in enumerate(("stdin", "stdout", "stderr")):
                    setattr(sys, stream, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115
                os.environ["TERM"] = "xterm-256color"
                for name in (
                    "COLUMNS",
                    "LINES",
                ):  # pytest's workers set them; they would count for more than the terminal
                    os.environ.pop(name, None)
                while os.get_terminal_size(0) != (columns, lines):
                    time.sleep(0.001)
                code = act()
                sys.stdout.flush()
            finally:
                os._exit(code)
        fcntl.ioctl(self.handle, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def shown(self) -> str:
        """Return the screen's text."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def scrolled(self) -> list[str]:
        """Return the lines that left the screen at its top."""
        return ["".join(row[place].data for place in sorted(row)).rstrip() for row in self.screen.history.top]

    def wait_for(self, text: str) -> None:
        """Read until a text is on the screen."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown():
            assert time.monotonic() < deadline, f"{text!r} never came:\n{self.shown()}"
            assert self._read(0.5) is not False, f"it ended without {text!r}:\n{self.shown()}"

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self.handle, b"\x03")

    def wait(self) -> int:
        """Read to the end, and return the exit code."""
        while self._read(PATIENCE_S):
            pass
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """End the process if it goes on."""
        try:
            if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass
        os.close(self.handle)

    def _read(self, seconds: float) -> bool | None:
        """Show what comes; return None if nothing does, and False at the end."""
        if not select.select([self.handle], [], [], seconds)[0]:
            return None
        try:
            found = os.read(self.handle, 1 << 16)
        except OSError:  # the other side is closed
            return False
        self.raw += found
        self._stream.feed(found)
        return bool(found)
