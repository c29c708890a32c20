"""Find runs of the backward pass among a window's regions, and the phases that follow from them.

A run may end a forward phase. Without an optimizer, the update is what reads or writes a weight or a gradient after a
run. If no module is called (a script may call `forward` itself), the forward phase begins with the first operator
through which the backward pass goes.
"""

from collections.abc import Iterable, Sequence

from tbdprof.hooks.on_torch.session.events import (
    ACCUMULATE_GRAD,
    BackwardRun,
    Enter,
    Event,
    Leave,
    Marked,
    Point,
    Region,
    Scope,
    surroundings,
)

_OF_CALLS = (Point.FORWARD, Point.FORWARD_END, Point.LAYER, Point.LAYER_END)
_ENDS_UPDATE = (Point.STEP, Point.FORWARD, Point.LAYER)  # by hand


def mark_last_runs(events: Sequence[Event]) -> None:
    """Let a thread's last backward run in a step end its forward phase, if the thread calls no module after it."""
    calls: set[int] = set()  # threads that call a module or run backward between here and the end of the step
    for event in reversed(events):
        if isinstance(event, Marked):
            if event.mark.point is Point.STEP:
                calls.clear()
            elif event.mark.point in _OF_CALLS:
                calls.add(event.thread)
        elif isinstance(event, Enter) and event.region.thread not in calls:
            runs = [each.run for each in (event.region, *surroundings(event.region)) if each.run is not None]
            for run in runs[-1:]:  # the outermost
                run.ends_forward = True
                calls.add(event.region.thread)


def mark_compiled_updates(events: Sequence[Event]) -> None:
    """Let compiled regions after a step's last backward run be its update, if no optimizer's step is seen in it."""
    later: list[Region] = []  # between here and the end of the step
    is_updated = False
    for event in reversed(events):
        if isinstance(event, Marked) and event.mark.point is Point.STEP:
            later, is_updated = [], False
        elif isinstance(event, Enter) and _is_outer(event.region):
            later.append(event.region)
        elif isinstance(event, Enter) and event.region.is_update:
            is_updated = True
        elif isinstance(event, Leave) and event.region.run is not None:
            for region in later:
                is_inner = region.parent in later  # the others' frame holds the backward run, too
                region.begins_update = region.ends_update = not (is_updated or region.begins_forward or is_inner)
            later, is_updated = [], True


def _is_outer(region: Region) -> bool:
    """Return whether a region is compiled or a frame, and lies in nothing but frames."""
    return region.is_translated and all(each.is_frame for each in surroundings(region))


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


def relate(regions: Sequence[Region]) -> None:
    """Fill in what a region knows of its surroundings; `regions` must be in order of their start."""
    previous: dict[tuple[int, Region | None], Region] = {}
    for region in regions:
        place = (region.thread, region.parent)
        before = previous.get(place)
        previous[place] = region
        if region.is_engine_node:
            _join_run(region, before.run if before is not None else None)
        elif region.name == ACCUMULATE_GRAD and region.scope is Scope.BACKWARD:
            _mark_runs_of_accumulation(region)
        elif region.scope is Scope.FUNCTION:
            _mark_node(region)
    _mark_compiled(regions)


def _mark_compiled(regions: Sequence[Region]) -> None:
    """Mark compiled regions and frames that begin the forward pass: the backward pass goes through their operators.

    No module's call is seen in them. A frame in which the backward pass runs, too, begins before the forward pass does.
    """
    reached = {region.number for region in regions if region.is_engine_node and region.number >= 0}
    last = {region.number: region for region in regions if region.is_numbered and region.number in reached}
    for region in last.values():
        around = [each for each in (region, *surroundings(region)) if each.is_translated and not each.holds_engine]
        if around and not any(each.is_engine_node for each in surroundings(region)):
            around[-1].begins_forward = True


def _join_run(region: Region, run: BackwardRun | None) -> None:
    region.run = run or BackwardRun(region, region)
    region.run.last = region
    for around in surroundings(region):
        around.holds_engine = True


def _mark_runs_of_accumulation(region: Region) -> None:
    # The node alone proves nothing: torch.autograd.grad also opens it but does not run it.
    for around in surroundings(region):
        if around.run is not None:
            around.run.ends_forward = True


def _mark_node(region: Region) -> None:
    node = next((around for around in surroundings(region) if around.scope is Scope.BACKWARD), None)
    if node is None:
        return
    node.holds_numbered |= region.number >= 0
    run = node.innermost_run
    # An operator without input tensors never has a number. Any other has one if torch keeps the graph of the gradients.
    if (
        run is not None
        and node is region.parent
        and region.number < 0
        and any(each is not None for each in region.shapes)
    ):
        run.makes_graph = False
