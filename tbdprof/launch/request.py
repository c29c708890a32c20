"""What to run from the suite, and how: the settings of a run, in one type for every module that runs one."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

from tbdprof import suite
from tbdprof.collect import host
from tbdprof.hooks import Setting
from tbdprof.loop.plan import Plan, Schedule, plan_for
from tbdprof.suite.workload import Config, Spec


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What to run, and how."""

    model: str
    framework: str
    device: str = "auto"  # auto, cpu, cuda, cuda:N
    batch_size: int | None = None  # samples per step; None: the model's, by device
    precision: str = "fp32"
    threads: int | None = None  # None: one per core that the process may use
    schedule: Schedule = field(default_factory=Schedule)
    seed: int = 0
    options: Mapping[str, str | int] = field(default_factory=dict)  # the model's own options
    data: Path | None = None  # folder of the model's data set; None: synthetic
    output: Path | None = None
    force: bool = False  # overwrite the output
    power_period_ms: int = 100  # between two samples of a GPU's power

    def path(self) -> Path:
        """Return the file to record into; by default a name with the current time."""
        stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        return self.output or Path(f"{self.model}-{self.framework}-{stamp}.tbd")

    def setting(self, *, follows: bool = True) -> Setting:
        """Return the settings that are fixed before the framework is imported."""
        threads = self.threads or max(1, int(host.usable_cores()))
        return Setting(self.device, threads, self.precision, self.seed, follows)

    def config(self, device: str | None = None) -> Config:
        """Return the model's configuration on a device (by default the requested one); may raise UsageError."""
        return suite.configure(
            suite.find(self.model),
            framework=self.framework,
            batch_size=self.batch_size,
            device=device or self.device,
            precision=self.precision,
            seed=self.seed,
            options=self.options,
            data=self.data,
        )

    def plan(self, device: str, windows: tuple[str, ...], spec: Spec, config: Config) -> Plan:
        """Return how long each part of the run lasts on a device."""
        return plan_for(
            device,
            self.schedule,
            windows=windows,
            period=1 if config.data else spec.period,
            watched_steps=spec.watched_steps(config.options),
        )

    def to_json(self) -> str:
        """Return the request as text for another process, with an absolute path of the data."""
        data = None if self.data is None else os.fspath(self.data.absolute())
        return json.dumps(asdict(self) | {"options": dict(self.options), "data": data, "output": None})

    @staticmethod
    def from_json(text: str) -> "RunRequest":
        """Return the request that a text from `to_json` holds."""
        fields = json.loads(text)
        data = None if fields["data"] is None else Path(fields["data"])
        return RunRequest(**fields | {"schedule": Schedule(**fields["schedule"]), "data": data})
