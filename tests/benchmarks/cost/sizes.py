"""The sizes of step that are measured: each a model of the suite with its options."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tbdprof.launch.request import RunRequest


@dataclass(frozen=True, slots=True)
class Size:
    """A model, and how many of its steps a stretch has."""

    about: str
    model: str
    batch_size: int
    steps: int  # timed with nothing watching, and in a clean window: whole periods of the model's batches
    watched_steps: int  # timed in a memory or kernels window, and with a framework's own profiler
    block_steps: int = 2  # of a clean window, as `tbdprof run` has them for steps that take so long: whole periods, too
    is_judged: bool = True
    options: Mapping[str, str | int] = field(default_factory=dict)

    def request(self, framework: str, threads: int) -> RunRequest:
        """Return the request of `tbdprof run` for this model."""
        return RunRequest(
            self.model, framework, device="cpu", batch_size=self.batch_size, threads=threads, options=self.options
        )

    def arguments(self, framework: str, threads: int) -> list[str]:
        """Return the arguments of `tbdprof` that run this model."""
        own = [f"--{name.replace('_', '-')}={value}" for name, value in {**self.options, "threads": threads}.items()]
        return ["run", self.model, "--framework", framework, "--device", "cpu", f"--batch-size={self.batch_size}", *own]


SIZES = {
    "5ms": Size(
        "a transformer of width 64 with 2 × 1 layers, batch 1",
        "transformer",
        1,
        steps=40,
        watched_steps=12,
        block_steps=12,
        is_judged=False,
        options={"width": 64, "layers": 1, "vocabulary": 1000},
    ),
    "0.2s": Size(
        "ResNet-50, batch 4, 128 pixels", "resnet50", 4, steps=8, watched_steps=4, options={"image_size": 128}
    ),
    "1.2s": Size("ResNet-50, batch 8, 224 pixels", "resnet50", 8, steps=4, watched_steps=2),
}
