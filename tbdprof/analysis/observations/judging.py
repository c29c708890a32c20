"""Each observation as a test; docs/observations.md defines them in words."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from tbdprof.analysis.observations.cases import LSTM, OTHER, RNN, Case, difference, groups, ladders, largest, rates
from tbdprof.analysis.sweep.knee import knee
from tbdprof.results.memory import CATEGORIES
from tbdprof.results.observations import Answer, Observation
from tbdprof.results.sweep import Growth, PointFigures

LEAST = 0.02  # a share that changes by less has not changed
FULL = 0.95  # busy: more is as busy as a device gets
LOW_CPU = 0.5
LONG = 0.02  # of all kernels' time: a kernel of long duration
LINEAR = 0.1  # of the growth that the first and the last batch give
_FEATURE_MAPS = "feature_maps"
_OF_PAPER = tuple(name for name in CATEGORIES if name != "unknown")

Judged = tuple[Answer, list[str], str | None]
SAYS = {
    1: "throughput grows with the mini-batch",
    2: "throughput of RNN-based models is not saturated where memory ends",
    3: "which framework is faster depends on the application",
    4: "larger mini-batches keep the device busier",
    5: "the device is less busy in LSTM-based models",
    6: "larger mini-batches use more of the FP32 peak",
    7: "RNN-based models have a low FP32 utilization",
    8: "there are long kernels with a low FP32 utilization",
    9: "CPU utilization is low",
    10: "a more advanced GPU is faster, but less busy and less well used",
    11: "feature maps take most of the memory",
    12: "feature maps grow in proportion to the mini-batch, and throughput is near its best before memory ends",
    13: "network bandwidth limits how training scales over machines",
}


def observe(cases: Sequence[Case]) -> list[Observation]:
    """Return all observations, in their order."""
    tests: dict[int, Callable[[Sequence[Case]], Judged]] = {
        1: _grows,
        2: _unsaturated,
        3: _diverse,
        4: lambda found: _rises(found, "busy time", lambda figures: figures.busy),
        5: lambda found: _lower(found, (LSTM,), "busy time", lambda figures: figures.busy),
        6: lambda found: _rises(found, "FP32 utilization", lambda figures: figures.fp32),
        7: lambda found: _lower(found, (LSTM, RNN), "FP32 utilization", lambda figures: figures.fp32),
        8: _long_kernels,
        9: _idle_cpu,
        10: _advanced,
        11: _feature_maps,
        12: _proportional,
        13: _network,
    }
    judged = {number: test(cases) for number, test in tests.items()}
    return [Observation(number, SAYS[number], each[0], tuple(each[1]), each[2]) for number, each in judged.items()]


def _grows(cases: Sequence[Case]) -> Judged:
    def one(group: Sequence[Case]) -> tuple[bool | None, str]:
        by_batch = rates(group)
        if len(by_batch) < 2:
            return None, ""
        first, last = min(by_batch), max(by_batch)
        found = difference(by_batch[last], by_batch[first])
        ratio = by_batch[last].per_s / by_batch[first].per_s
        return None if not found else found > 0, f"{ratio:.3g}× from batch {first} to {last}"

    return _all(ladders(cases), one, "no program was run with two mini-batches whose throughput is known")


def _unsaturated(cases: Sequence[Case]) -> Judged:
    recurrent = [case for case in cases if case.kind in (LSTM, RNN)]

    def one(group: Sequence[Case]) -> tuple[bool | None, str]:
        full = any(case.figures is None and case.label == group[0].label for case in recurrent)
        found = knee(rates(group), "samples", ends_at_memory=full).value
        if found is None or found.growth is Growth.UNCLEAR or not full:
            return None, ""
        return found.growth is Growth.GROWING, f"{found.growth.value} at batch {found.largest}, where memory ends"

    return _all(groups(recurrent), one, "no RNN-based model was run with batches up to the end of memory")


def _diverse(cases: Sequence[Case]) -> Judged:
    faster: dict[tuple[str, str], set[str]] = {}
    said: list[str] = []
    found = [case for case in cases if case.figures is not None and case.figures.rate is not None]
    for one, other in combinations(found, 2):
        same = (one.program, one.batch) == (other.program, other.batch)
        if not same or one.framework == other.framework or _device(one) != _device(other):
            continue
        first, second = sorted((one, other), key=lambda case: case.framework)
        sign = difference(first.figures.rate, second.figures.rate)  # type: ignore[union-attr,arg-type]
        if sign:
            winner = first.framework if sign > 0 else second.framework
            faster.setdefault((first.framework, second.framework), set()).add(f"{one.program}:{winner}")
            said.append(f"{one.program}, batch {one.batch}: {winner} is faster")
    programs = {pair: {each.partition(":")[0] for each in names} for pair, names in faster.items()}
    if not any(len(names) > 1 for names in programs.values()):
        return Answer.UNCLEAR, said, "no two programs were run in the same two frameworks with a clear difference"
    winners = [{each.partition(":")[2] for each in names} for names in faster.values()]
    return (Answer.YES if any(len(each) > 1 for each in winners) else Answer.NO), said, None


def _rises(cases: Sequence[Case], name: str, figure: Callable[[PointFigures], float | None]) -> Judged:
    def one(group: Sequence[Case]) -> tuple[bool | None, str]:
        known = [(case.batch, value) for case, value in _known(group, figure)]
        if len(known) < 2:
            return None, ""
        (first, low), (last, high) = known[0], known[-1]
        said = f"{name} {low:.1%} at batch {first}, {high:.1%} at {last}"
        if abs(high - low) < LEAST and not min(low, high) >= FULL:
            return None, said
        return high > low - LEAST, said

    return _all(ladders(cases), one, f"no program was run with two mini-batches whose {name} is known")


def _lower(
    cases: Sequence[Case], kinds: Sequence[str], name: str, figure: Callable[[PointFigures], float | None]
) -> Judged:
    found = {label: case for label, case in largest(cases).items() if next(_known([case], figure), None)}
    low = {label: figure(case.figures) for label, case in found.items() if case.figures and case.kind in kinds}
    other = {label: figure(case.figures) for label, case in found.items() if case.figures and case.kind == OTHER}
    said = [f"{label}: {value:.1%}" for label, value in {**low, **other}.items() if value is not None]
    if not low or not other:
        missing = f"a model of {' or '.join(kinds)} layers" if not low else "a model of other layers"
        return Answer.UNCLEAR, said, f"{missing} with a known {name} is not among these recordings"
    highest, least = max(filter(None, low.values()), default=0.0), min(filter(None, other.values()), default=0.0)
    return (Answer.YES if highest < least else Answer.NO), said, None


def _long_kernels(cases: Sequence[Case]) -> Judged:
    def one(group: Sequence[Case]) -> tuple[bool | None, str]:
        figures = group[-1].figures
        low = None if figures is None else figures.low_utilization
        if low is None:
            return None, ""
        long = [each for each in low.rows if each.share >= LONG]
        if not long:
            return False, "no kernel of long duration is below the average"
        return True, f"{long[0].name} takes {long[0].share:.1%} at {long[0].utilization or 0.0:.1%}"

    return _all(groups(cases), one, "no kernels with a utilization were recorded", any_is_enough=True)


def _idle_cpu(cases: Sequence[Case]) -> Judged:
    on_gpu = [case for case in cases if case.figures is not None and case.figures.on_gpu]

    def one(group: Sequence[Case]) -> tuple[bool | None, str]:
        figures = group[-1].figures
        if figures is None or figures.cpu is None:
            return None, ""
        return figures.cpu < LOW_CPU, f"{figures.cpu:.1%} of the cores"

    return _all(groups(on_gpu), one, "no recording is of training on a GPU, beside which the CPU could be idle")


def _advanced(cases: Sequence[Case]) -> Judged:
    pairs = [
        (one, other)
        for one, other in combinations(largest(cases).values(), 2)
        if (one.label, one.batch) == (other.label, other.batch) and _device(one) != _device(other)
    ]
    answers, said = [], []
    for pair in pairs:
        known = [each.figures for each in pair if each.figures and each.figures.rate and each.figures.busy is not None]
        if len(known) < 2 or any(each.fp32 is None or not each.on_gpu for each in known):
            continue
        slow, fast = sorted(known, key=lambda each: each.rate.per_s if each.rate else 0.0)
        answers.append((fast.busy or 0) < (slow.busy or 0) and (fast.fp32 or 0) < (slow.fp32 or 0))
        ratio = (fast.rate.per_s if fast.rate else 0.0) / (slow.rate.per_s if slow.rate else 1.0)
        use = f"busy {fast.busy:.1%} against {slow.busy:.1%}, FP32 {fast.fp32:.1%} against {slow.fp32:.1%}"
        said.append(f"{pair[0].label}: {ratio:.3g}× on {fast.device}; {use}")
    if not answers:
        return Answer.UNCLEAR, said, "no program was run with the same mini-batch on two GPUs"
    return (Answer.YES if all(answers) else Answer.NO), said, None


def _feature_maps(cases: Sequence[Case]) -> Judged:
    def one(group: Sequence[Case]) -> tuple[bool | None, str]:
        sizes = None if group[-1].figures is None else group[-1].figures.category_bytes
        if not sizes or not sum(sizes.values()):
            return None, ""
        most = max(_OF_PAPER, key=lambda name: sizes[name])
        share = sizes[_FEATURE_MAPS] / sum(sizes.values())
        return most == _FEATURE_MAPS, f"{share:.1%} at batch {group[-1].batch}; most is {most.replace('_', ' ')}"

    return _all(groups(cases), one, "no recording has a memory window")


def _proportional(cases: Sequence[Case]) -> Judged:
    def one(group: Sequence[Case]) -> tuple[bool | None, str]:
        sizes = [
            (case.batch, case.figures.category_bytes[_FEATURE_MAPS])
            for case in group
            if case.figures is not None and case.figures.category_bytes is not None
        ]
        full = any(case.figures is None and case.label == group[0].label for case in cases)
        found = knee(rates(group), "samples", ends_at_memory=full).value
        if len(sizes) < 3 or found is None or found.growth is Growth.UNCLEAR:
            return None, ""
        straight = _is_straight(sizes)
        said = f"feature maps {'grow' if straight else 'do not grow'} in proportion; {found.growth.value}"
        return straight and found.growth is Growth.SATURATED, f"{said} at batch {found.largest}"

    return _all(groups(cases), one, "no program was run with three mini-batches whose memory and throughput are clear")


def _is_straight(sizes: Sequence[tuple[int, int]]) -> bool:
    """Return whether sizes lie on the line through the first and the last."""
    (first, low), (last, high) = sizes[0], sizes[-1]
    slope = (high - low) / (last - first)
    off = [abs(size - low - slope * (batch - first)) for batch, size in sizes]
    return slope > 0 and max(off) <= LINEAR * (high - low)


def _network(cases: Sequence[Case]) -> Judged:
    said = [
        f"{label}: communication alone takes {case.figures.exposed:.1%} of a step"
        for label, case in largest(cases).items()
        if case.figures is not None and case.figures.exposed is not None
    ]
    return Answer.UNCLEAR, said, "the bandwidth between machines is not recorded: run the program over two networks"


def _all(
    found: Mapping[str, Sequence[Case]],
    test: Callable[[Sequence[Case]], tuple[bool | None, str]],
    reason: str,
    *,
    any_is_enough: bool = False,
) -> Judged:
    """Return yes if a test holds for all groups that have an answer (or for one), no if it does not."""
    answers: list[bool] = []
    said: list[str] = []
    for label, group in found.items():
        answer, figure = test(group)
        if figure:
            said.append(f"{label}: {figure}")
        if answer is not None:
            answers.append(answer)
    if not answers:
        return Answer.UNCLEAR, said, reason if not said else "the differences are within the noise"
    holds = any(answers) if any_is_enough else all(answers)
    return (Answer.YES if holds else Answer.NO), said, None


def _known(group: Iterable[Case], figure: Callable[[PointFigures], float | None]) -> Iterator[tuple[Case, float]]:
    for case in group:
        value = None if case.figures is None else figure(case.figures)
        if value is not None:
            yield case, value


def _device(case: Case) -> str:
    return "" if case.figures is None else case.figures.device
