"""The file: round trip, what survives, and one clear line for what cannot be read."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from fake_loop import SHORT, profiler
from make import MemoryStory, parameter, run, same_table, timed_window

from tbdprof.analysis.summary import summarize
from tbdprof.errors import RecordingFormatError, UsageError
from tbdprof.facts.consumed import Consumed
from tbdprof.facts.file.format import schema
from tbdprof.facts.file.placing import claim, save
from tbdprof.facts.file.reading import load
from tbdprof.facts.file.writing import Writer
from tbdprof.facts.recording import STILL_RUNNING, Recording, Window
from tbdprof.facts.records import Optimizer, Peaks, Role

FIXTURES = Path(__file__).parents[1] / "fixtures"


def sample_recording() -> Recording:
    story = MemoryStory()
    story.own(story.allocate(12), Role.WEIGHT, "weiß")
    story.mark()
    recording = story.recording(
        parameters=(parameter("w", 3, 1),),
        optimizers=(Optimizer("sgd", ("w",), {"momentum": 0.9}),),
        batch_size=4,
        peaks=Peaks({"bf16": 4e12}, 1e9, {"bf16": "its clock"}, 2e9, {"bf16": 1e12}),
    )
    recording.missing["nvml"] = "no driver"
    recording.windows.append(timed_window(1, "clean", [0.5, 0.25]))
    return recording


def test_a_recording_reads_back_as_it_was(tmp_path: Path):
    recording = sample_recording()
    save(recording, tmp_path / "a.tbd")

    again = load(tmp_path / "a.tbd")

    assert again.run == recording.run
    assert again.missing == recording.missing
    assert [(w.ordinal, w.name, w.state) for w in again.windows] == [
        (0, "memory", "complete"),
        (1, "clean", "complete"),
    ]
    assert same_table(again.windows[0].table("allocation"), recording.windows[0].table("allocation"))
    assert again.strings[int(again.windows[0].table("owner")["name"][0])] == "weiß"


def test_parts_appended_to_a_window_are_read_in_order(tmp_path: Path):
    recording = Recording(run(), [Window(0, "clean")])
    parts = timed_window(0, "clean", [1.0, 2.0]).table("step")
    writer = Writer(tmp_path / "a.tbd", recording)
    writer.append(recording.windows[0], {"step": parts[:1]})
    writer.append(recording.windows[0], {"step": parts[1:]})
    writer.close()

    assert same_table(load(tmp_path / "a.tbd").windows[0].table("step"), parts)


def test_facts_of_the_run_that_a_failed_commit_did_not_write_are_written_by_the_next(tmp_path: Path):
    recording = Recording(run())
    writer = Writer(tmp_path / "a.tbd", recording)
    recording.run = replace(recording.run, model="other")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "_put_texts", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            writer.write_state()
    writer.close()

    assert load(tmp_path / "a.tbd").run.model == "other"


def test_an_open_window_is_named_as_lost(tmp_path: Path):
    recording = Recording(run(), [Window(0, "clean", "complete"), Window(1, "memory")])
    Writer(tmp_path / "a.tbd", recording).abandon()  # as when killed

    again = load(str(tmp_path / "a.tbd"))

    assert again.lost_windows == ["memory (window 1)"]
    assert again.named("memory") == []
    assert not again.run.complete


def without_checksums(path: Path, version: int) -> None:
    """Turn a recording into one of an earlier format."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript("ALTER TABLE window RENAME TO w; ALTER TABLE column_block RENAME TO b;")
        for statement in schema(version).split(";"):
            if "TABLE window" in statement or "TABLE column_block" in statement:
                connection.execute(statement)
        connection.execute("INSERT INTO window SELECT ordinal, name, state FROM w")
        connection.execute("INSERT INTO column_block SELECT window, kind, part, name, dtype, rows, data FROM b")
        connection.executescript("DROP TABLE w; DROP TABLE b; DROP TABLE checksum;")
        connection.execute(f"PRAGMA user_version = {version}")


def test_a_column_that_was_added_later_reads_as_not_reported(tmp_path: Path):
    save(sample_recording(), tmp_path / "a.tbd")
    without_checksums(tmp_path / "a.tbd", 1)
    with closing(sqlite3.connect(tmp_path / "a.tbd")) as connection, connection:
        connection.execute("DELETE FROM column_block WHERE kind = 'span' AND name = 'work'")
        connection.execute("INSERT INTO run VALUES ('mood', '\"fine\"')")

    again = load(tmp_path / "a.tbd")

    assert set(again.windows[0].table("span")["work"].tolist()) <= {-1}
    assert again.windows[0].table("allocation")["requested_bytes"].tolist() == [12]


def damaged(path: Path, how: str) -> None:
    save(sample_recording(), path)
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "random":
        path.write_bytes(bytes(range(256)) * 40)
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif how == "overwritten":
        whole = path.read_bytes()
        path.write_bytes(whole[:4096] + b"\xff" * 4096 + whole[8192:])
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute({"newer": "PRAGMA user_version = 99", "other": "PRAGMA application_id = 7"}[how])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("missing", "cannot read"),
        ("empty", "is empty"),
        ("random", "is not a tbdprof recording"),
        ("truncated", "is damaged"),
        ("overwritten", "is damaged"),
        ("newer", "newer tbdprof (format 99, this one reads up to 6)"),
        ("other", "not a tbdprof recording"),
    ],
)
def test_a_file_that_cannot_be_read_says_why_in_one_line(tmp_path: Path, how: str, said: str):
    path = tmp_path / "a.tbd"
    damaged(path, how)

    with pytest.raises(RecordingFormatError) as caught:
        load(path)

    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_existing_file_is_only_overwritten_by_force(tmp_path: Path):
    path = tmp_path / "a.tbd"
    path.write_text("precious")

    with pytest.raises(UsageError, match="--force"):
        save(sample_recording(), path)

    assert path.read_text() == "precious"
    save(sample_recording(), path, force=True)
    assert load(path).run.model == "toy"


def test_claiming_a_place_leaves_nothing_behind(tmp_path: Path):
    claim(tmp_path / "a.tbd", force=False)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("place", "said"), [("nowhere/a.tbd", "No such file"), (".", "is a folder")])
def test_a_place_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path, place: str, said: str):
    with pytest.raises(UsageError, match=said):
        claim(tmp_path / place, force=False)


def test_nothing_lies_beside_the_file(tmp_path: Path):
    save(sample_recording(), tmp_path / "a.tbd")

    assert [item.name for item in tmp_path.iterdir()] == ["a.tbd"]


def test_a_real_recording_of_format_1_still_reads():
    summary = summarize(load(FIXTURES / "format-1.tbd"))

    memory = summary.memory
    assert memory is not None
    assert summary.parameter_count == 212
    assert memory.allocator_peak_bytes == memory.independent_peak_bytes == 10_008
    assert memory.roles_at_peak[Role.WEIGHT] == 4 * 212
    assert memory.roles_max[Role.OPTIMIZER_STATE] == 2 * 4 * 212 + 4 * 4
    assert memory.roles_at_peak[Role.INPUT] == 32 * 8 * 4
    assert memory.mismatches == 0
    assert summary.missing_now == {"checksums": "format 1 has none: damage to this file may go unnoticed"}


def test_a_real_recording_of_format_2_still_reads():
    summary = summarize(load(FIXTURES / "format-2.tbd"))

    assert summary.memory is not None
    assert summary.utilization is not None
    assert summary.memory.allocator_peak_bytes == summary.memory.independent_peak_bytes == 10_660
    forward = 2 * (8 * 12 + 12 * 8)
    assert summary.utilization.flops_per_sample == 3 * forward - 2 * 8 * 12  # the input needs no gradient
    assert summary.missing_now == {"checksums": "format 2 has none: damage to this file may go unnoticed"}


def test_a_real_recording_of_format_3_still_reads():
    summary = summarize(load(FIXTURES / "format-3.tbd"))

    assert summary.memory is not None
    assert summary.utilization is not None
    assert summary.throughput is not None
    assert summary.memory.allocator_peak_bytes == summary.memory.independent_peak_bytes == 4496
    assert summary.utilization.flops_per_sample == 2 * (3 * (8 * 12 + 12 * 8) - 8 * 12)
    assert summary.utilization.flops_per_unit == {"samples": 960}
    assert (summary.throughput.unit, summary.throughput.others) == ("samples", ())
    assert summary.lengths == ()
    assert summary.missing_now == {"checksums": "format 3 has none: damage to this file may go unnoticed"}


def test_what_a_step_consumed_is_there_again_after_reading(tmp_path: Path):
    prof, hook = profiler(SHORT, path=tmp_path / "a.tbd")
    with prof:
        for _ in range(20):
            hook.clock.sleep(0.1)
            prof.step(Consumed(90, also={"sentences": 4}, padding={"tokens": 10}, lengths={"source": 30}))

    kept = load(tmp_path / "a.tbd")
    for window, again in zip(prof.recording.windows, kept.windows, strict=True):
        rows = window.table("step_count")
        assert len(rows) == 3 * len(window.table("step")) > 0
        assert (rows == again.table("step_count")).all()
    assert summarize(kept).lengths == summarize(prof.recording).lengths


def test_a_file_from_before_some_facts_were_recorded_reads_as_without_them(tmp_path: Path):
    save(sample_recording(), tmp_path / "a.tbd")
    without_checksums(tmp_path / "a.tbd", 3)
    with closing(sqlite3.connect(tmp_path / "a.tbd")) as connection, connection:
        connection.execute("UPDATE run SET value = json_remove(value, '$.vector_flops_per_s') WHERE key = 'peaks'")
        connection.execute("DELETE FROM run WHERE key = 'runs_ahead'")
        assert connection.total_changes == 2

    loaded = load(tmp_path / "a.tbd").run

    assert loaded.peaks is not None
    assert loaded.peaks.of("bf16", product=False) == loaded.peaks.of("bf16", product=True) == 4e12
    assert not loaded.runs_ahead


def test_a_run_that_was_going_on_when_its_process_died_was_killed(tmp_path: Path):
    Writer(tmp_path / "a.tbd", Recording(run(ended_by=STILL_RUNNING))).abandon()

    assert load(tmp_path / "a.tbd").run.ended_by == "the process was killed"


def test_a_file_without_its_facts_is_damaged(tmp_path: Path):
    save(sample_recording(), tmp_path / "a.tbd")
    with closing(sqlite3.connect(tmp_path / "a.tbd")) as connection, connection:
        connection.execute("DELETE FROM run")

    with pytest.raises(RecordingFormatError, match="is damaged"):
        load(tmp_path / "a.tbd")


def test_only_the_kinds_that_are_asked_for_are_read(tmp_path: Path):
    whole = load(Path(__file__).parent.parent / "fixtures" / "format-5-torch.tbd")
    part = load(Path(__file__).parent.parent / "fixtures" / "format-5-torch.tbd", kinds=("step", "sample"))

    assert {kind for window in whole.windows for kind in window.tables} > {"step", "sample"}
    assert {kind for window in part.windows for kind in window.tables} == {"step", "sample"}
    for read, found in zip(whole.windows, part.windows, strict=True):
        assert (read.name, read.state) == (found.name, found.state)
        assert read.table("step").tolist() == found.table("step").tolist()
