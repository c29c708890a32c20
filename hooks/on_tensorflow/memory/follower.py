"""Follows allocations from before the first one, until a window knows what exists."""

from tbdprof.errors import UnavailableError
from tbdprof.hooks.on_tensorflow.memory.existing import Block, live
from tbdprof.hooks.on_tensorflow.session.session import Session
from tbdprof.hooks.on_tensorflow.watch.owners import visible

_FOLLOWED = 2  # times that all is awaited until following ends: before the first steps, and after them


class Follower:
    """A session from before the first allocation until the first training steps are done; it is then gone.

    It costs these steps some time, and no later one anything.
    """

    def __init__(self) -> None:
        self.blocks: dict[str, dict[int, Block]] = {}  # by allocator and address
        self.outside: frozenset[int] = frozenset()  # where tensors lie that the allocator did not make
        self._session: Session | None = Session()
        self._awaited = 0
        try:
            self._session.start()
        except UnavailableError:
            self._session = None

    def awaited(self) -> None:
        """Be told that all was waited for: at the second time training has begun, and following ends."""
        self._awaited += 1
        if self._awaited >= _FOLLOWED:
            self.end()

    def end(self) -> None:
        """End the session, if it is on, and keep what lives."""
        session, self._session = self._session, None
        if session is None:
            return
        seen = visible()
        self.blocks = live(session.stop(of_memory_alone=True).memory)
        self.outside = frozenset(seen.keys() - {address for blocks in self.blocks.values() for address in blocks})
