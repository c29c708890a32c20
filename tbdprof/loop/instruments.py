"""The instruments of a run besides its framework's hook: which one is on in which window.

No instrument affects the loop.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tbdprof.collect import Collector
from tbdprof.collect.host_load import HostLoad
from tbdprof.errors import UnavailableError, visible
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.rows import Tables
from tbdprof.facts.windows import CLEAN
from tbdprof.loop.defect import defect_line
from tbdprof.loop.plan import WINDOWS


@runtime_checkable
class OfBlocks(Protocol):
    """A collector that tells the blocks of a window's steps from what is done between them."""

    def begin_block(self) -> None:
        """Take note that a block begins."""

    def end_block(self) -> None:
        """Take note that a block has ended."""


class Keeper(Protocol):
    """Keeps what is recorded, as a `Recorder` does."""

    recording: Recording

    def append(self, window: Window, tables: Tables) -> None:
        """Add records to a window."""


@dataclass(frozen=True, slots=True)
class Instruments:
    """The collectors of each window, the windows of a run, and the reason for each missing instrument."""

    collectors: Mapping[str, Sequence[Collector]] = field(default_factory=lambda: {CLEAN: [HostLoad()]})
    windows: tuple[str, ...] = WINDOWS
    missing: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def on(self, window: Window, keeper: Keeper) -> Iterator[None]:
        """Run a window's collectors during the block, and keep their records whatever ends it.

        A collector that cannot start is left out, with its reason; so is one that fails.
        """
        with ExitStack() as ends:
            for collector in self.collectors.get(window.name, ()):
                try:
                    collector.start(window.name)
                except UnavailableError as error:
                    keeper.recording.missing[collector.name] = str(error)
                except Exception as error:  # noqa: BLE001 - a defect of one instrument costs that instrument alone
                    _leave_out(collector, keeper, error)
                else:
                    ends.callback(_keep, collector, window, keeper)
            yield

    def begin_block(self, window: str) -> None:
        """Tell a window's collectors that a block of its steps begins."""
        for collector in self.collectors.get(window, ()):
            if isinstance(collector, OfBlocks):
                with suppress(OSError):  # what it lacks is then missing in its own figure
                    collector.begin_block()

    def end_block(self, window: str) -> None:
        """Tell a window's collectors that a block of its steps has ended."""
        for collector in self.collectors.get(window, ()):
            if isinstance(collector, OfBlocks):
                with suppress(OSError):
                    collector.end_block()

    def close(self) -> None:
        """Close every collector once."""
        with ExitStack() as ends:
            for collector in {id(each): each for several in self.collectors.values() for each in several}.values():
                ends.callback(collector.close)


def _keep(collector: Collector, window: Window, keeper: Keeper) -> None:
    try:
        collector.stop()
        collected = collector.drain(keeper.recording.strings)
        keeper.recording.missing.update({key: visible(reason) for key, reason in collected.missing.items()})
        keeper.append(window, collected.tables)
    except Exception as error:  # noqa: BLE001 - as above
        _leave_out(collector, keeper, error)


def _leave_out(collector: Collector, keeper: Keeper, error: Exception) -> None:
    keeper.recording.missing[collector.name] = defect_line(f"to collect {collector.name}", error)
