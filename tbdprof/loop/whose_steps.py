"""Which optimizer's steps end the training steps of an unchanged script: the first one's, or its successor's."""

import weakref
from collections.abc import Sequence

from tbdprof.hooks.instances import weights_of

PATIENCE = 100  # steps that others take without it, at least, before an optimizer counts as done


class WhoseSteps:
    """Tells the steps of the optimizer that counts from those of others.

    Where optimizers take turns, the steps of the first one count. A successor takes its place: an optimizer of the same
    weights, once the one before is gone or is done. An optimizer that is gone or done without a successor has ended its
    training.
    """

    def __init__(self, optimizer: object) -> None:
        self._of_others = 0  # steps that others took since its last one
        self._most_of_others = 0  # between two of its own
        self._begin(optimizer, weights_of(optimizer))

    def count(self, optimizer: object) -> bool:
        """Return whether a step that an optimizer took ends a training step."""
        counted = self._optimizer()
        if counted is optimizer:
            self._most_of_others = max(self._most_of_others, self._of_others)
            self._of_others = 0
            return True
        self._of_others += 1
        if counted is None or self.ended_by:
            weights = weights_of(optimizer)
            before = {id(each) for ref in self._weights if (each := ref()) is not None}
            if any(id(each) in before for each in weights):
                self._begin(optimizer, weights)
                return True
        return False

    @property
    def ended_by(self) -> str:
        """Return why the training is over, or "" while it may go on."""
        if self._of_others <= max(PATIENCE, 2 * self._most_of_others):
            return ""
        return f"another training followed: other weights were updated in the last {self._of_others} optimizer steps"

    def _begin(self, optimizer: object, weights: Sequence[object]) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._weights = [weakref.ref(each) for each in weights]
        self._of_others = self._most_of_others = 0
