"""Every switch of every model in a framework, at the default sizes: does it train, and from the same loss?

    python tests/benchmarks/switches.py FRAMEWORK [MODEL...]

Trains each model for two steps as it is, and then with each of its switches. Prints the losses before the first and the
second step, and the CPU time. Exits with 1 where a switch fails, or where the first loss is another one.
"""

import os
import sys
import time
from collections.abc import Iterator
from itertools import islice

import numpy as np

from tbdprof import suite
from tbdprof.launch import train_check
from tbdprof.suite import switches
from tbdprof.suite.workload import Spec

STEPS = 2
ROUNDING = 1e-3  # of the loss


def main(framework: str, models: list[str]) -> int:
    """Print a row for each model and switch; return the exit code."""
    wrong = 0
    for model in models or suite.names():
        spec = suite.find(model)
        if framework not in spec.switches:
            continue
        plain = None
        for chosen in settings(spec, framework):
            began = time.process_time()
            try:
                found = losses(spec, framework, chosen)
                plain = plain or found
                said = "" if np.isclose(found[0], plain[0], rtol=ROUNDING) else f"not the plain {plain[0]:.6g}"
            except Exception as error:  # noqa: BLE001 - the others are tried, too
                found, said = (), f"{type(error).__name__}: {error}"
            wrong += bool(said)
            name = " ".join(f"{switches.flag(name)} {value}" for name, value in chosen.items()) or "plain"
            shown = " ".join(f"{each:.6g}" for each in found)
            print(f"{model} {framework} {name}: {shown} {said} ({time.process_time() - began:.1f} s)", flush=True)
    return 1 if wrong else 0


def settings(spec: Spec, framework: str) -> Iterator[dict[str, str]]:
    """Yield no switch, and then each value of each switch that is not its default."""
    yield {}
    for each in switches.of_model(spec, framework):
        yield from ({each.name: value} for value in each.choices if value != each.default)


def losses(spec: Spec, framework: str, chosen: dict[str, str]) -> tuple[float, ...]:
    """Return the losses before each of the first steps, without dropout: a switch may draw other random numbers."""
    without = {"dropout": "off"} if "dropout" in {option.name for option in spec.options} else {}
    if framework == "mxnet":
        import mxnet as mx  # seeds the noise of WGAN-GP's generator

        mx.random.seed(0)
    config = suite.configure(spec, framework=framework, options={**without, **chosen})
    learner = suite.build(spec.name, framework, config)
    batches = train_check.find(spec).batches
    assert batches is not None, f"{spec.name} has no loss of a single step"
    return tuple(float(learner.train(batch)) for batch in islice(batches(config), STEPS))  # type: ignore[attr-defined]


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "bool" not in np.__dict__:
        np.bool = bool  # numpy 1.24 took the name away, and MXNet 1.9 reads it
    sys.exit(main(sys.argv[1], sys.argv[2:]))
