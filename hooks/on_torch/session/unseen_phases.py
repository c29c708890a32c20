"""Find the phases that no call of a module and no optimizer shows.

Without an optimizer, the update is what reads or writes a weight or a gradient after a backward pass. If no module is
called (a script may call `forward` itself), the forward phase begins with the first operator through which the backward
pass goes.
"""

from collections.abc import Iterable, Sequence

from tbdprof.hooks.on_torch.session.events import Enter, Event, Marked, Point, Region, Scope, surroundings

_ENDS_UPDATE = (Point.STEP, Point.FORWARD, Point.LAYER)


def mark_phases(events: Sequence[Event]) -> None:
    """Mark the first and the last operator of each update, and the first one of forward phases without a module."""
    entered = [event.region for event in events if isinstance(event, Enter)]
    calls = any(isinstance(event, Marked) and event.mark.point is Point.FORWARD for event in events)
    forward = set() if calls else _forward(entered)
    updates: dict[int, _Update] = {}  # by thread
    is_forward: set[int] = set()  # threads in a forward phase
    for event in events:
        if isinstance(event, Marked):
            if event.mark.point is Point.BY_HAND:
                updates[event.thread] = _Update(event.mark.touches)
            elif event.mark.point in _ENDS_UPDATE:
                updates.pop(event.thread, None)
        elif isinstance(event, Enter):
            region = event.region
            if region.is_engine_node:
                updates.pop(region.thread, None)
                is_forward.discard(region.thread)
            elif region in forward and region.thread not in is_forward:
                updates.pop(region.thread, None)
                is_forward.add(region.thread)
                region.begins_forward = True
            elif region.thread in updates and _outermost(region) is region:
                updates[region.thread].goes_on(region)


class _Update:
    """An update by hand: from the first operator that touches a weight or a gradient to the last one so far."""

    def __init__(self, touches: frozenset[int]) -> None:
        self._touches = touches
        self._last: Region | None = None

    def goes_on(self, region: Region) -> None:
        """Take the next operator."""
        if self._touches.isdisjoint(region.addresses) or region.begins_update:
            return
        if self._last is None:
            region.begins_update = True
        else:
            self._last.ends_update = False
        region.ends_update, self._last = True, region


def _forward(regions: Iterable[Region]) -> set[Region]:
    """Return the outermost operators through which the backward pass goes, or would go after the window's end."""
    every = list(regions)
    passes = [place for place, region in enumerate(every) if region.is_engine_node]
    reached = {every[place].number for place in passes}
    end = passes[-1] if passes else 0
    highest = max((region.number for region in every[end:] if region.is_numbered), default=-1)
    last = {
        region.number: region
        for place, region in enumerate(every)  # an operator with a backward node uses up its number
        if region.is_numbered and (region.number in reached or (place > end and region.number < highest))
    }
    return {outer for region in last.values() if not (outer := _outermost(region)).is_engine_node}


def _outermost(region: Region) -> Region:
    """Return the outermost operator around a region, or the region itself."""
    return next((each for each in reversed([region, *surroundings(region)]) if each.scope is Scope.FUNCTION), region)
