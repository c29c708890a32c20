"""What is known of an operator that ran."""

from dataclasses import dataclass

from tbdprof.facts.records import Phase
from tbdprof.facts.work import Work
from tbdprof.hooks.on_mxnet.flops.products import Computed


@dataclass(slots=True)
class Facts:
    """What is known of an operator; `source` is the number of its forward operator if it is a gradient."""

    phase: Phase
    layer: str | None = None
    computed: Computed | None = None
    source: int = -1
    work: Work | None = None
