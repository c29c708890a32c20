"""How much the models of a loop are given, step by step, as seen at their calls while a window watches them."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

SAMPLES, TOKENS = "samples", "tokens"
LEAST_WITH_A_REST = 20  # batches of an epoch whose last one is smaller: with fewer of them the mean is too far off
MOST_VIEWS = 3  # calls with the same samples before a backward pass: pairs, triplets; more may be samples of their own
SAY = "give --samples-per-step"  # of `run`; `samples_per_step` of `profile`
FIRST_SIZE = f"the first size of the model's input (if that is not the batch, {SAY})"
ONES = "one for each call of the model before a backward pass"
_LAST = "the first size of the model's input in the last of its {} calls before a backward pass (if all count, {})"
_MANY = "the model was called {} times before a backward pass, and nothing says whether each call has new samples: {}"
_Key = tuple[bool, Hashable]  # whether it is a layer by itself, and which


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the batch lies in a model's input, as a layer of a known layout tells it."""

    layer: str  # the layer's type
    first: int  # size of the layer's input: of the batch, or of time, channels or features
    samples: int
    dimensions: int | None = None  # of a model's input that this may hold for, None: any

    def holds_for(self, shape: Sequence[int]) -> bool:
        """Return whether a model's input has the samples that its layer has."""
        return shape[0] in (self.first, self.samples) and self.dimensions in (None, len(shape))


@dataclass(frozen=True, slots=True)
class _Given:
    """How much a model is given; `unknown` says why that is not known."""

    samples: int = 0
    tokens: int = 0
    source: str = ""
    unknown: str = ""

    def __add__(self, other: "_Given") -> "_Given":
        return _Given(
            self.samples + other.samples,
            self.tokens + other.tokens,
            other.source or self.source,
            other.unknown or self.unknown,
        )


@dataclass(slots=True)
class _Calls:
    """The calls of a model on one device since the last backward pass."""

    last: _Given = field(default_factory=_Given)
    new: int = 0  # calls that may have samples of their own
    all_ones: bool = True

    def add(self, given: _Given, *, continues: bool) -> None:
        self.last = given
        self.new += not (continues and self.new)
        self.all_ones = self.all_ones and given.samples == 1 and not (continues and self.new > 1)

    def consumed(self) -> _Given:
        if self.new < 2:
            return self.last
        if self.all_ones:
            return _Given(self.new, self.new * self.last.tokens, ONES)
        if self.new > MOST_VIEWS:
            return _Given(unknown=_MANY.format(self.new, SAY))
        return _Given(self.last.samples, self.last.tokens, _LAST.format(self.new, SAY))


def _sizes(shape: Sequence[int], times: int, *, is_tokens: bool, layout: Layout | None) -> _Given:
    """Return the samples and tokens of an input: its first size, and of integers of shape (batch, time) all of them."""
    tokens = times * int(shape[0] * shape[1]) if is_tokens and len(shape) == 2 and shape[1] > 1 else 0
    if layout is not None and layout.holds_for(shape):
        return _Given(times * layout.samples, tokens, f"the batch size of the model's {layout.layer}")
    return _Given(times * int(shape[0]), tokens, FIRST_SIZE)


class Batches:
    """Counts what each step of a window is given.

    A backward pass consumes the last call of each model before it: so micro-batches add up, and neither a network that
    is called again for each time step nor an evaluation does. Where each of several calls has one sample, and none
    continues another, all count: an episode of an agent. Where more than `MOST_VIEWS` others do not continue each
    other, nobody knows. Of several models, the one that is given least counts: a critic is given real and made samples,
    its generator as many as one of these.
    """

    def __init__(self) -> None:
        self.source = ""  # where the samples of the last step are from
        self.unknown = ""  # why the samples of a step are not known
        self._steps: list[Mapping[str, float]] = []
        self._called: dict[_Key, dict[Hashable, _Calls]] = {}  # since the last backward pass, by model and part
        self._consumed: dict[_Key, _Given] = {}  # in this step, by model
        self._before_update: dict[_Key, _Given] | None = None  # what was consumed when the optimizer's step began

    def called(
        self,
        model: Hashable,
        shape: Sequence[int],
        *,
        is_tokens: bool = False,
        is_layer: bool = False,
        part: Hashable = None,
        layout: Layout | None = None,
        continues: bool = False,
        times: int = 1,
    ) -> None:
        """Note a call in training of a model, or of a model's layer by itself, which counts where no model is called.

        `part` is what has its own share of a batch: a device. A call `continues` those before it if its input was
        computed from what they returned. The input stands for `times` inputs of this shape.
        """
        if len(shape) and shape[0] > 0:
            calls = self._called.setdefault((is_layer, model), {}).setdefault(part, _Calls())
            calls.add(_sizes(shape, times, is_tokens=is_tokens, layout=layout), continues=continues)

    def passed(self) -> None:
        """Note that a backward pass began that adds to the gradients.

        Passes within an optimizer's step are of a closure, which computes the same loss again: the last one counts.
        """
        called, self._called = self._called, {}
        before = self._consumed if self._before_update is None else self._before_update
        for model, parts in called.items():
            self._consumed[model] = sum((calls.consumed() for calls in parts.values()), before.get(model, _Given()))

    def update_begins(self) -> None:
        """Note that an optimizer's step began."""
        if self._before_update is None:
            self._before_update = dict(self._consumed)

    def update_ends(self) -> None:
        """Note that an optimizer's step ended."""
        self._before_update = None

    def step_ended(self) -> None:
        """Note the end of a step; without a backward pass, the last calls are what it was given."""
        self._before_update = None
        if not self._consumed:
            self.passed()
        outer = min((is_layer for is_layer, _ in self._consumed), default=False)
        given = [each for key, each in self._consumed.items() if key[0] == outer]
        known = [each for each in given if not each.unknown]
        least = min(known, key=lambda each: (each.samples, each.tokens), default=_Given())
        counts = ((SAMPLES, least.samples), (TOKENS, least.tokens))
        self._steps.append({unit: float(count) for unit, count in counts if count})
        self.source = least.source or self.source
        if given and not known:
            self.unknown = given[0].unknown
        self._called, self._consumed = {}, {}

    def take(self) -> list[Mapping[str, float]]:
        """Return what each step was given, by unit, and begin anew."""
        steps, self._steps = self._steps, []
        self._called, self._consumed, self._before_update = {}, {}, None
        self.source = self.unknown = ""
        return steps
