"""Follow allocations from before the first one, until a window knows what exists."""

from tbdprof.errors import UnavailableError
from tbdprof.hooks.on_tensorflow.memory.existing import Block, live
from tbdprof.hooks.on_tensorflow.session.session import Session
from tbdprof.hooks.on_tensorflow.watch.owners import visible

_FOLLOWED = 2  # waits for all work until following ends: one before the first steps and one after them


class Follower:
    """A session from before the first allocation until the first training steps are done; then it ends.

    It slows these steps down somewhat, and no later step.
    """

    def __init__(self) -> None:
        self.blocks: dict[str, dict[int, Block]] = {}  # by allocator and address
        self.outside: frozenset[int] = frozenset()  # addresses of tensors that the allocator did not allocate
        self._session: Session | None = Session()
        self._awaited = 0
        try:
            self._session.start()
        except UnavailableError:
            self._session = None

    def awaited(self) -> None:
        """Count a wait for all work; at the second one, training has begun, and following ends."""
        self._awaited += 1
        if self._awaited >= _FOLLOWED:
            self.end()

    def end(self) -> None:
        """End the session, if it is on, and keep the live blocks."""
        session, self._session = self._session, None
        if session is None:
            return
        seen = visible()
        self.blocks = live(session.stop(of_memory_alone=True).memory)
        self.outside = frozenset(seen.keys() - {address for blocks in self.blocks.values() for address in blocks})
