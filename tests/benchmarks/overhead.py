"""What profiling costs: training steps in each window, against the same steps with nothing watching.

    python tests/benchmarks/overhead.py [torch] [mxnet] [tensorflow] [--size 5ms|0.2s|1.2s ...] [--cycles N]
        [--restarts N] [--threads N] [--no-peers] [--no-runs] [--json FILE]

For each framework and size there are three processes: a bare one with nothing of tbdprof's in it, a prepared one that
is set up and recorded as `tbdprof run` does it, and one that runs the framework's own profilers. In each cycle every
arm takes a stretch of steps, in an order drawn anew, while the other processes wait. The processes are started anew
`--restarts` times, because where a process happens to lie in memory changes its speed, too.

The arms: `bare`; `bare again` (in the third process), for what noise alone does; `settings`: the prepared process with
no window open and no step reported, for what is set when it starts (an allocator, an account of it); `waiting` (MXNet):
bare steps that wait for the device after each, as memory and kernels windows do; `clean`, `memory`, `kernels`; the
framework's own profilers. Printed are the mean ratios with their 95 % bootstrap intervals, of wall time and of the
process's CPU time; the latter says something on a busy machine, too. An event is a row of the recording's allocations
and spans, or what torch's profiler counts; its cost is CPU time. Then `tbdprof run` itself runs once, for how long one
waits for it, and for its report's own estimate of what its windows cost.

Exits with 1 where the interval of a ratio of wall times lies above its bound (`cost/figures.py`), with 2 where a
process failed. All of it takes more than two hours on a quiet machine; without the peers about half of that.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent))
from cost import processes, waits
from cost.figures import BARE, Stretch, rows
from cost.processes import BenchmarkError
from cost.results import Result, document, table, waiting
from cost.sizes import SIZES
from cost.waits import Waits

from tbdprof.collect import host

FRAMEWORKS = ("torch", "mxnet", "tensorflow")
Cycle = dict[str, Stretch]


def result(framework: str, size: str, cycles: Sequence[Cycle], waited: Waits | None) -> Result:
    """Return what the cycles of one framework and size show."""
    stretches = {arm: [cycle[arm] for cycle in cycles] for arm in cycles[0]}
    found = rows(framework, stretches, is_judged=SIZES[size].is_judged)
    bare_s = float(np.median([each.wall_s for each in stretches[BARE]]))
    return Result(framework, size, SIZES[size].about, len(cycles), bare_s, found, waited)


def timed(framework: str, size: str, asked: argparse.Namespace) -> list[Cycle]:
    """Return the cycles, spread evenly over fresh processes."""
    found: list[Cycle] = []
    for start, part in enumerate(np.array_split(range(asked.cycles), min(asked.restarts, asked.cycles))):
        measured = processes.measure(framework, size, asked.threads, len(part), seed=start, peers=not asked.no_peers)
        for cycle in measured:
            found.append(cycle)
            print(f"{framework}, {size}: cycle {len(found)} of {asked.cycles}", file=sys.stderr, flush=True)
    return found


def main(
    arguments: Sequence[str],
    time_cycles: Callable[[str, str, argparse.Namespace], list[Cycle]] = timed,
    run: Callable[..., Waits] = waits.measure,
) -> int:
    """Measure and print; return the exit code."""
    asked = _parser().parse_args(arguments)
    console, results = Console(), list[Result]()
    try:
        for framework in asked.frameworks or FRAMEWORKS:
            for size in asked.size or SIZES:
                cycles = time_cycles(framework, size, asked)
                waited = None if asked.no_runs else run(framework, SIZES[size], asked.threads)
                results.append(result(framework, size, cycles, waited))
                console.print(table(results[-1]))
                console.print(*waiting(waited) if waited is not None else (), sep="\n", highlight=False)
                if asked.json is not None:  # after each, because the next one takes minutes
                    asked.json.write_text(json.dumps(document(results), indent=1) + "\n")
    except BenchmarkError as error:
        print(f"overhead: {error}", file=sys.stderr)
        return 2
    above = [(each, row) for each in results for row in each.above]
    for each, row in above:
        print(f"above its bound: {each.framework}, {each.size}, {row.arm}: {row.wall.mean:.3f}", file=sys.stderr)
    return 1 if above else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure what profiling costs.")
    parser.add_argument("frameworks", nargs="*", choices=(*FRAMEWORKS, []), metavar="framework")
    parser.add_argument("--size", action="append", choices=tuple(SIZES), help="of a step; may be given again")
    parser.add_argument("--cycles", type=_positive, default=30, help="stretches of each arm (default 30)")
    parser.add_argument("--restarts", type=_positive, default=3, help="fresh processes over the cycles (default 3)")
    # Frameworks alone would take others than `tbdprof run` does: MXNet takes half of the cores.
    parser.add_argument(
        "--threads",
        type=_positive,
        default=max(1, int(host.usable_cores())),
        help="of each process (default: one per usable core, as `tbdprof run` has it)",
    )
    parser.add_argument("--no-peers", action="store_true", help="leave out the frameworks' own profilers")
    parser.add_argument("--no-runs", action="store_true", help="leave out `tbdprof run` itself")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
