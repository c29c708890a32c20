"""What must be shown on a card, within 10 minutes: one check after another, each in a process of its own.

    python tests/gpu/check.py [--output DIR] [--limit-s S] [--only NAME]... [--list]

Results are in DIR/results.txt and results.json after every check; a call with --only adds to them. A check passes,
fails, or is not possible here, with the reason. Exits with 1 unless all that were called for passed.

With TBDPROF_REHEARSE=1 it runs at tiny sizes on a CPU, with TBDPROF_REHEARSE=cuda on a simulated device, which shows
nothing but that the checks themselves run.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parent.parent))

from gpu import schedule, setting  # noqa: E402
from gpu.checks import CHECKS  # noqa: E402
from gpu.products import count_here  # noqa: E402
from gpu.schedule import NOT_POSSIBLE, Check, Result, Runner, Verdict  # noqa: E402

from tbdprof.collect.gpu import cuda_driver  # noqa: E402
from tbdprof.errors import UnavailableError  # noqa: E402

LIMIT_S = 590.0


def main(arguments: Sequence[str]) -> int:
    """Run the checks that are asked for, or one of them in this process."""
    asked = _parsed(arguments)
    if asked.products:
        count_here(asked.products)
        return 0
    checks = schedule.chosen(CHECKS, asked.only)
    if asked.list:
        print("\n".join(f"{check.name:<20} at most {check.limit_s:.0f} s" for check in checks))
        return 0
    asked.output.mkdir(parents=True, exist_ok=True)
    if asked.here:
        (check,) = (check for check in CHECKS if check.name == asked.here)
        schedule.leave(_judge(check, asked.output), asked.verdict)
        return 0
    checks = [replace(check, limit_s=check.limit_s * setting.PATIENCE) for check in checks]
    limit_s = asked.limit_s * setting.PATIENCE
    results = schedule.run_all(checks, asked.output, runner(asked.output), limit_s=limit_s, report=_say)
    print(f"written: {asked.output / 'results.txt'}")
    return 0 if schedule.succeeded(results) else 1


def runner(folder: Path) -> Runner:
    """Return what runs checks in processes, or says why none can be run here."""
    try:
        if not setting.ON_CPU:
            cuda_driver.limits(0)
    except UnavailableError as error:
        verdict = Verdict(NOT_POSSIBLE, str(error))
        return lambda *_: verdict
    return schedule.in_process(
        lambda check, left: [
            sys.executable,
            str(HERE),
            "--here",
            check.name,
            "--output",
            str(folder),
            "--verdict",
            str(left),
        ]
    )


def _judge(check: Check, folder: Path) -> Verdict:
    try:
        return check.run(folder)
    except UnavailableError as error:
        return Verdict(NOT_POSSIBLE, str(error))


def _say(result: Result) -> None:
    print(f"{result.verdict.state:<13}{result.name} ({result.seconds:.0f} s): {result.verdict.reason}", flush=True)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("build/gpu-check"))
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="names, or how they begin")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    parser.add_argument("--verdict", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--products", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
