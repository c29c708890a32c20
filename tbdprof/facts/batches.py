"""How much the models of a loop are given, step by step, as seen at their calls while a window watches them."""

from collections.abc import Hashable, Mapping, Sequence

SAMPLES, TOKENS = "samples", "tokens"
LEAST_WITH_A_REST = 20  # batches of an epoch whose last one is smaller: with fewer of them the mean is too far off
_Given = tuple[int, int]  # samples and tokens
_Key = tuple[bool, Hashable]  # whether it is a layer by itself, and which


def _sizes(shape: Sequence[int], *, is_tokens: bool) -> _Given:
    """Return the samples and tokens of an input: its first size, and of integers of shape (batch, time) all of them."""
    return int(shape[0]), int(shape[0] * shape[1]) if is_tokens and len(shape) == 2 and shape[1] > 1 else 0


class Batches:
    """Counts what each step of a window is given.

    A backward pass consumes the last call of each model before it: so micro-batches add up, and neither a network that
    is called again for each time step nor an evaluation does. Of several models, the one that is given least counts: a
    critic is given real and made samples, its generator as many as one of these.
    """

    def __init__(self) -> None:
        self._steps: list[Mapping[str, float]] = []
        self._called: dict[_Key, dict[Hashable, _Given]] = {}  # since the last backward pass, by model and part
        self._consumed: dict[_Key, _Given] = {}  # in this step, by model

    def called(
        self,
        model: Hashable,
        shape: Sequence[int],
        *,
        is_tokens: bool = False,
        is_layer: bool = False,
        part: Hashable = None,
    ) -> None:
        """Note a call in training of a model, or of a model's layer by itself, which counts where no model is called.

        `part` is what has its own share of a batch: a device.
        """
        if len(shape) and shape[0] > 0:
            self._called.setdefault((is_layer, model), {})[part] = _sizes(shape, is_tokens=is_tokens)

    def passed(self) -> None:
        """Note that a backward pass began."""
        called, self._called = self._called, {}
        for model, parts in called.items():
            before = self._consumed.get(model, (0, 0))
            sums = (sum(sizes) for sizes in zip(before, *parts.values(), strict=True))
            self._consumed[model] = (next(sums), next(sums))

    def step_ended(self) -> None:
        """Note the end of a step; without a backward pass, the last calls are what it was given."""
        if not self._consumed:
            self.passed()
        outer = min((is_layer for is_layer, _ in self._consumed), default=False)
        samples, tokens = min((given for key, given in self._consumed.items() if key[0] == outer), default=(0, 0))
        self._steps.append({unit: float(count) for unit, count in ((SAMPLES, samples), (TOKENS, tokens)) if count})
        self._called, self._consumed = {}, {}

    def take(self) -> list[Mapping[str, float]]:
        """Return what each step was given, by unit, and begin anew."""
        steps, self._steps = self._steps, []
        self._called, self._consumed = {}, {}
        return steps
