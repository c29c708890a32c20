"""A sampled window made up: kernels whose use of the device is known, and what a sampler would have seen of them."""

from dataclasses import dataclass, field

import numpy as np
from make import run

from tbdprof.facts.counters import PM_BUSY, PM_FP32, PM_FP32_LITE, PM_LOST, PM_RESIDUAL, PM_TENSOR
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import KernelKind, Strings
from tbdprof.facts.rows import KINDS

DEVICE = "cuda:0"
BEGIN_NS = 1_000_000_000
US = 1000


@dataclass
class PmStory:
    """Kernels, each of a name, with times in nanoseconds after the beginning, and the true use of every name."""

    name: np.ndarray  # number
    start_ns: np.ndarray
    end_ns: np.ndarray
    fp32: np.ndarray  # by name
    tensor: np.ndarray
    steps: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), "i8"))
    stream: np.ndarray | None = None

    @classmethod
    def serial(
        cls, seed: int, *, steps: int = 40, kernels: int = 300, names: int = 40, median_us: float = 25.0
    ) -> "PmStory":
        """Return kernels one after the other, of random lengths and uses, the same sequence in every step."""
        rng = np.random.default_rng(seed)
        order = rng.integers(0, names, kernels)
        base = np.exp(rng.normal(np.log(median_us), 1.3, names)).clip(3, 1500) * 1e3
        fp32, tensor = rng.beta(1, 2, names) * 0.9, rng.beta(1, 3, names) * 0.9
        fp32[rng.random(names) < 0.4] = 0.01
        long = base[np.tile(order, steps)] * rng.normal(1, 0.03, steps * kernels)
        idle = rng.random(steps * kernels) < 0.25
        gap = np.where(idle, rng.exponential(base.mean() * 0.125, len(long)), rng.exponential(1200.0, len(long)))
        gap[::kernels] += rng.uniform(50e3, 400e3, steps)
        end = np.cumsum(long + gap).astype("i8")
        start = end - long.astype("i8")
        edges = np.concatenate([[0], end[kernels - 1 :: kernels] + 10_000])
        return cls(np.tile(order, steps), start, end, fp32, tensor, np.stack([edges[:-1], edges[1:]], axis=1))

    def seen(
        self, *, interval_ns: int = 100_000, offset_ns: int = 0, noise: float = 0.005, seed: int = 0
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the starts of samples and what each saw; their clock is so much ahead of the kernels'."""
        rng = np.random.default_rng(seed)
        edges = np.arange(0, int(self.end_ns.max()) + 1, interval_ns)
        uses = {PM_FP32: self.fp32[self.name], PM_FP32_LITE: self.fp32[self.name], PM_TENSOR: self.tensor[self.name]}
        seen = {name: _sampled(self.start_ns, self.end_ns, use, edges) for name, use in uses.items()}
        reached = np.maximum.accumulate(self.end_ns)
        alone = np.maximum(self.start_ns, np.concatenate([[0], reached[:-1]]))
        kept = self.end_ns > alone
        seen[PM_BUSY] = _sampled(alone[kept], self.end_ns[kept], np.ones(kept.sum()), edges)
        noisy = {name: values + rng.normal(0, noise, len(values)) for name, values in seen.items()}
        return edges[:-1] + offset_ns, noisy

    def recording(
        self, seen: tuple[np.ndarray, dict[str, np.ndarray]], interval_ns: int = 100_000, *, kernels: bool = True
    ) -> Recording:
        """Return a recording of one sampled window; its first step settles."""
        strings = Strings()
        window = Window(
            0, "sampled", "complete", {"step": self._steps(), "sample": _samples(strings, seen, interval_ns)}
        )
        if kernels:
            window.tables["kernel"] = self._kernels(strings)
        return Recording(run(device=DEVICE), [window], strings)

    def time_of(self) -> np.ndarray:
        """Return the time of the counted steps' kernels by name."""
        counted = self.start_ns >= self.steps[1, 0] if len(self.steps) > 1 else np.ones(len(self.start_ns), bool)
        return np.bincount(self.name[counted], (self.end_ns - self.start_ns)[counted], len(self.fp32))

    def _steps(self) -> np.ndarray:
        rows = np.zeros(len(self.steps), KINDS["step"])
        rows["index"] = rows["block"] = np.arange(len(rows))
        rows["start_ns"], rows["end_ns"], rows["units"] = *(BEGIN_NS + self.steps.T), 1.0
        return rows

    def _kernels(self, strings: Strings) -> np.ndarray:
        rows = np.zeros(len(self.name), KINDS["kernel"])
        for column in ("launch_ns", "span", "registers", "shared_bytes", "moved_bytes", "thread", "graph"):
            rows[column] = -1
        texts = np.array([strings.add(f"kernel_{number}") for number in range(len(self.fp32))])
        rows["name"], rows["kind"], rows["device"] = texts[self.name], KernelKind.KERNEL, strings.add(DEVICE)
        rows["grid"], rows["block"] = strings.add("[64, 1, 1]"), strings.add("[256, 1, 1]")
        rows["start_ns"], rows["end_ns"] = BEGIN_NS + self.start_ns, BEGIN_NS + self.end_ns
        rows["stream"] = 7 if self.stream is None else self.stream
        return rows


def _samples(strings: Strings, seen: tuple[np.ndarray, dict[str, np.ndarray]], interval_ns: int) -> np.ndarray:
    start, columns = seen
    pieces = []
    for name, values in columns.items():
        rows = np.zeros(len(start), KINDS["sample"])
        rows["counter"], rows["device"], rows["value"] = strings.add(name), strings.add(DEVICE), values
        rows["start_ns"], rows["time_ns"] = BEGIN_NS + start, BEGIN_NS + start + interval_ns
        pieces.append(rows)
    figures = ((PM_LOST, 3.0), (PM_RESIDUAL, 120.0))
    own = [
        np.array([(strings.add(name), strings.add(DEVICE), BEGIN_NS, value, -1)], KINDS["sample"])
        for name, value in figures
    ]
    return np.concatenate([*pieces, *own])


def _sampled(start: np.ndarray, end: np.ndarray, use: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the mean of a use over each stretch between edges; it is 0 where no interval is."""

    def until(times: np.ndarray, weights: np.ndarray, at: np.ndarray) -> np.ndarray:
        order = np.argsort(times, kind="stable")
        place = np.searchsorted(times[order], at, side="right")
        total = np.concatenate([[0], np.cumsum(weights[order])])[place]
        return total * at - np.concatenate([[0], np.cumsum(weights[order] * times[order])])[place]

    integral = until(start, use, edges) - until(end, use, edges)
    return np.diff(integral) / np.diff(edges)


def three(fp32: float = 0.5) -> PmStory:
    """Return 40 steps of three kernels: 260 µs at a use, 40 µs idle, 170 µs at none, 3 µs between, 90 µs at 0.2."""
    starts, ends, names, steps = [], [], [], []
    for step in range(40):
        at = step * 731 * US
        starts += [at, at + 300 * US, at + 473 * US]
        ends += [at + 260 * US, at + 470 * US, at + 563 * US]
        names += [0, 1, 2]
        steps.append((at, at + 731 * US))
    uses = np.array([fp32, 0.0, 0.2])
    return PmStory(np.array(names), np.array(starts), np.array(ends), uses, uses / 2, np.array(steps))
