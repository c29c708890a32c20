"""Atari 2600's Pong, in the emulator: `--data atari`, by ale-py with Gymnasium's own wrappers.

The settings are those of Mnih et al., 2015 (Nature 518), and 2016 (arXiv:1602.01783). An action lasts four frames; the
maximum of the last two frames, pixel by pixel, is shown in gray at 84×84. An observation is four such images. An
episode begins with up to 30 frames without an action. No action is repeated at random. ale-py's package ships the game.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbdprof.errors import UsageError

WORD = "atari"  # given in place of a data folder; no folder is read
MODULES = ("ale_py", "gymnasium", "cv2")
SKIPPED, FRAMES, SIDE, LONGEST_BEGINNING = 4, 4, 84, 30


def look(folder: Path) -> None:
    """Raise UsageError if anything but the emulator is requested, or if the emulator is not installed."""
    if folder != Path(WORD):
        raise UsageError(f"Atari games are played, no folder is read: give --data {WORD} or synthetic, not {folder}")
    absent = [name for name in MODULES if find_spec(name) is None]
    if absent:
        raise UsageError(f"--data {WORD} needs {' and '.join(absent)}: pip install 'tbdprof[atari]'")


class Pong:
    """One game of Pong; an observation is four frames, (4, 84, 84), 0 to 255."""

    def __init__(self, seed: int) -> None:
        import ale_py
        import gymnasium
        from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # otherwise it prints a banner
        gymnasium.register_envs(ale_py)
        made = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
        gray = AtariPreprocessing(made, LONGEST_BEGINNING, SKIPPED, SIDE)
        self._game: Any = FrameStackObservation(gray, FRAMES)
        self._seed: int | None = seed  # of the first episode; later episodes continue its random numbers

    def reset(self) -> NDArray[np.uint8]:
        """Begin an episode; return its first observation."""
        seed, self._seed = self._seed, None
        seen, _ = self._game.reset(seed=seed)
        return np.asarray(seen)

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool]:
        """Take an action; return the next observation, the reward, and whether the episode is over."""
        seen, reward, ended, cut, _ = self._game.step(action)
        return np.asarray(seen), float(reward), bool(ended or cut)
