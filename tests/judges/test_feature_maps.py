"""Feature maps against an oracle: what torch saves for the backward pass, in a run of the same loop without tbdprof."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from judges.process import Run, run_python

from tbdprof.analysis.memory.accounting import account, of_device
from tbdprof.facts.file.reading import load
from tbdprof.facts.records import Phase, Role, SpanKind

# What lives beside the saved tensors when the backward pass begins, each with its bytes.
LOSS = 4
SEED = 4  # the gradient of the loss itself, made before torch's engine is entered
RNG_STATE = 5056  # kept by checkpointing, to draw the same random numbers again
# Saved by torch, and no feature map to tbdprof.
CAST_WEIGHT = 32 * 10 * 2  # autocast's copy of the last layer's weight


def live_feature_maps(recording: Path) -> Counter[int]:
    """Return the sizes of the feature maps that live as the backward pass of the last step begins."""
    loaded = load(recording)
    (window,) = loaded.named("memory")
    worked = account(loaded, of_device(loaded, window))
    rows, blocks = worked.tree.rows, worked.blocks
    outermost = worked.tree.phase(worked.tree.index(rows["parent"])) != Phase.BACKWARD
    backward = rows[(rows["kind"] == SpanKind.PHASE) & (rows["phase"] == Phase.BACKWARD) & outermost]
    at = backward["first_sequence"][backward["first_sequence"] > worked.marks[-2]].min()
    live = (blocks.start <= at) & (at < blocks.end) & (worked.roles == Role.FEATURE_MAP)
    return Counter(np.asarray(blocks.size_bytes[live]).tolist())


@pytest.mark.parametrize(
    ("loop", "beside", "lacking"),
    [
        ("convnet", [LOSS, SEED], []),
        ("fresh_batches", [LOSS, SEED], []),
        ("tied_transformer", [LOSS, SEED], []),
        ("lstm_found", [LOSS, SEED], []),
        ("checkpointed_not_reentrant", [LOSS, SEED, RNG_STATE], []),
        ("autocast", [LOSS, SEED], [CAST_WEIGHT]),
        ("resnet50", [LOSS, SEED], []),
    ],
)
def test_feature_maps_are_what_torch_saves_for_backward(
    loop: str, beside: list[int], lacking: list[int], run: Run
) -> None:
    recorded = live_feature_maps(run("torch_loops", loop).recording)
    saved = Counter(run_python("torch", ["-m", "judges.saved_tensors", loop])["saved"])
    assert recorded.total() > 5
    assert recorded - saved == Counter(beside)
    assert saved - recorded == Counter(lacking)
