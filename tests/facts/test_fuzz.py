"""Some hundreds of damaged and hostile files: refused, salvaged, or read as they were. `make fuzz` opens 20,000."""

from pathlib import Path

import pytest
from facts import fuzz

SEEDS = range(280)


def test_no_mutant_of_a_recording_does_harm_or_passes_for_another_report():
    said: list[str] = []

    counts = fuzz.fuzz(SEEDS, lambda seed, text: said.append(f"mutant {seed}: {text}"))

    assert not said, "\n".join(said)
    assert sum(counts.values()) == len(SEEDS)
    assert {fuzz.REFUSED, fuzz.SAME, fuzz.CHANGED, fuzz.SALVAGED} <= set(counts)


def test_a_reader_that_let_damage_pass_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = fuzz.SOURCES[-1]
    original = fuzz.facts(fuzz.load(source))
    changed = fuzz.load(source)
    changed.missing["memory"] = "one byte was another"
    monkeypatch.setattr(fuzz, "load", lambda path: changed)

    assert fuzz.outcome(source, "blind", original, tmp_path, way=1) == fuzz.DEFECTS[-1]
