"""Whether a training loop has settled, judged on blocks of steps while they run; the verdict is recorded, not redone.

Every report names the method. For the times per step of the last blocks, both must hold:
- no trend: the Mann-Kendall test (H. B. Mann, Econometrica 13, 1945; M. G. Kendall, Rank Correlation Methods, 1948)
  does not reject "no trend" at the 5 % level;
- little spread: the coefficient of variation is below a bound (A. Georges, D. Buytaert, L. Eeckhout, "Statistically
  rigorous Java performance evaluation", OOPSLA 2007, section 4.2).
"""

import math
from collections.abc import Sequence

BLOCKS = 6
SPREAD_LIMIT = 0.10
TREND_Z = 1.96  # two-sided 5 % of the normal distribution
METHOD = (
    f"no Mann-Kendall trend at 5 % and coefficient of variation below {SPREAD_LIMIT:.0%} over the last {BLOCKS} blocks"
)


def is_settled(step_times: Sequence[float]) -> bool:
    """Return whether the times per step of the latest blocks have neither a trend nor too much spread."""
    if len(step_times) < BLOCKS:
        return False
    latest = step_times[-BLOCKS:]
    return abs(trend_z(latest)) < TREND_Z and spread(latest) < SPREAD_LIMIT


def trend_z(values: Sequence[float]) -> float:
    """Return the Mann-Kendall statistic in standard deviations; above 0 the values grow."""
    n = len(values)
    score = sum(_sign(later - earlier) for i, earlier in enumerate(values) for later in values[i + 1 :])
    return (score - _sign(score)) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)


def spread(values: Sequence[float]) -> float:
    """Return the coefficient of variation: sample standard deviation over mean."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)) / mean


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
