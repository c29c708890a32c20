"""A small game that shows learning within minutes: catch a falling block.

The board has 6×6 places. A block falls from a random column, one place a step. The player moves a paddle in the bottom
row by Pong's actions right and left, with or without fire. An episode has five steps; its reward is 1 if the paddle
catches the block and -1 if it does not. The board is drawn in frames of 84×84 pixels, 14×14 pixels for each place.
"""

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.a3c.architecture import FRAMES, SIDE

PLACES = 6  # of the board, in each direction
MOVES = (0, 0, 1, -1, 1, -1)  # of the paddle, for each of Pong's actions
FALLS = PLACES - 1  # steps in an episode

_PIXELS = SIDE // PLACES  # of a place
_BLOCK, _PADDLE = 255, 128


class Catch:
    """The game of one player; see `tbdprof.suite.a3c.environments.Environment`."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._row = self._column = self._paddle = 0
        self._frames = np.zeros((FRAMES, SIDE, SIDE), np.uint8)

    def reset(self) -> NDArray[np.uint8]:
        """Let a block begin to fall, with the paddle in the middle; the first frame stands for all four."""
        self._row, self._column, self._paddle = 0, int(self._random.integers(PLACES)), PLACES // 2
        self._frames = np.repeat(self._drawn()[None], FRAMES, 0)
        return self._frames

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool]:
        """Move the paddle, then let the block fall by one place."""
        self._paddle = min(PLACES - 1, max(0, self._paddle + MOVES[action]))
        self._row += 1
        self._frames = np.concatenate([self._frames[1:], self._drawn()[None]])
        if self._row < FALLS:
            return self._frames, 0.0, False
        return self._frames, 1.0 if self._column == self._paddle else -1.0, True

    def _drawn(self) -> NDArray[np.uint8]:
        board = np.zeros((PLACES, PLACES), np.uint8)
        board[-1, self._paddle] = _PADDLE
        board[self._row, self._column] = _BLOCK
        return board.repeat(_PIXELS, 0).repeat(_PIXELS, 1)
