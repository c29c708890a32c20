"""Looking at other threads never waits for a lock that this thread holds."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import faulthandler, gc, threading
from tbdprof.hooks import threads

class Local:  # garbage whose end needs the lock of Python's threads
    def __init__(self):
        self.local, self.me = threading.local(), self

faulthandler.dump_traceback_later(60, exit=True)
end = threading.Event()
others = [threading.Thread(target=end.wait) for _ in range(8)]
for each in others:
    each.start()
gc.set_threshold(1)  # collect at nearly every allocation
for _ in range(3000):
    Local()
    assert len(threads.frames()) == 8 and threads.are_others()
assert gc.isenabled()
end.set()
"""


def test_garbage_that_ends_meanwhile_stops_nothing() -> None:
    """Python 3.11.7 waited for ever: it holds that lock while it makes the answer, and may collect garbage there."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")
