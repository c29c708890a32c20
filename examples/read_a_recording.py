"""Work with a recording: `python examples/read_a_recording.py run.tbd`."""

import sys
from pathlib import Path

import tbdprof

summary = tbdprof.summarize(tbdprof.load(Path(sys.argv[1])))

if summary.memory is None:
    print(f"no memory: {summary.missing['memory']}")
else:
    for holding in summary.memory.top_at_peak[:5]:
        print(f"{holding.size_bytes:>12,} bytes  {holding.role.name.lower():<15} {holding.name or holding.layer}")
