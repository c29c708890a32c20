"""Which collectors are on in which window, and that nothing one of them does reaches the loop."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from tbdprof.collect import Collector
from tbdprof.errors import UnavailableError
from tbdprof.facts.recorder import Recorder
from tbdprof.facts.recording import Window


@contextmanager
def on(collectors: Mapping[str, Sequence[Collector]], window: Window, recorder: Recorder) -> Iterator[None]:
    """Have a window's collectors record while the block runs, and keep what they recorded whatever ends it.

    One that cannot start is left out, with its reason.
    """
    with ExitStack() as ends:
        for collector in collectors.get(window.name, ()):
            try:
                collector.start(window.name)
            except UnavailableError as error:
                recorder.recording.missing[collector.name] = str(error)
            else:
                ends.callback(_keep, collector, window, recorder)
        yield


def close(collectors: Mapping[str, Sequence[Collector]]) -> None:
    """Close every collector once."""
    with ExitStack() as ends:
        for collector in {id(each): each for several in collectors.values() for each in several}.values():
            ends.callback(collector.close)


def _keep(collector: Collector, window: Window, recorder: Recorder) -> None:
    collector.stop()
    collected = collector.drain(recorder.recording.strings)
    recorder.recording.missing.update(collected.missing)
    recorder.append(window, collected.tables)
