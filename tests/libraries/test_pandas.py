"""The rows of a sweep as a data frame of pandas."""

from pathlib import Path

import pytest

from tbdprof import load_sweep
from tbdprof.results.sweep import End
from tbdprof.sweep.folder import opened
from tbdprof.sweep.outcome import Outcome
from tbdprof.sweep.plan import Plan, Script

pytest.importorskip("pandas")

RECORDING = Path(__file__).parents[1] / "fixtures/format-5-torch.tbd"


def test_a_data_frame_has_a_column_for_each_setting_and_category(tmp_path: Path) -> None:
    folder = opened(tmp_path / "s", Plan(Script(("fake", "{bs}")), {"bs": ("1", "2")}))
    ends = (Outcome(End.FINISHED), Outcome(End.OUT_OF_MEMORY))
    for settings, outcome in zip(folder.plan.combinations(), ends, strict=True):
        folder.keep(folder.plan.point(settings), outcome)
    (folder.points / "bs=1.tbd").write_bytes(RECORDING.read_bytes())

    sweep = load_sweep(folder.path)
    frame = sweep.rows.to_pandas()

    assert [*frame["settings.bs"]] == ["1", "2"]
    assert sweep.rows[0].category_bytes is not None
    assert frame["category_bytes.weights"][0] == sweep.rows[0].category_bytes["weights"]
    assert frame["per_s"].isna().tolist() == [False, True]
