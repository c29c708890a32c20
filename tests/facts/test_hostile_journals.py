"""A journal beside a recording can make SQLite delete any file: what is no plain journal of its own is refused."""

import os
import shutil
import sqlite3
import struct
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from make import run

from tbdprof.errors import RecordingFormatError
from tbdprof.facts.file.placing import save
from tbdprof.facts.file.reading import load
from tbdprof.facts.recording import Recording, Window

MAGIC = bytes.fromhex("d9d505f920a163d7")  # of SQLite's journals, at their head and after the name of a super-journal


def hot(path: Path) -> Path:
    """Leave a recording as a process leaves it that dies amid a commit, with its journal; return the journal."""
    save(Recording(run(), [Window(0, "clean", "complete")]), path)
    at_work = path.with_name("at-work.tbd")
    shutil.copy(path, at_work)
    connection = sqlite3.connect(at_work, isolation_level=None)
    connection.execute("PRAGMA journal_mode = TRUNCATE")
    connection.execute("PRAGMA cache_size = 1")  # so that changed pages reach the file before the commit
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE run SET value = '\"changed\"' WHERE key = 'model'")
    connection.executemany("INSERT INTO text VALUES (?, ?)", ((number, "x" * 3000) for number in range(9, 99)))
    journal = path.with_name(f"{path.name}-journal")
    shutil.copy(at_work, path)
    shutil.copy(f"{at_work}-journal", journal)
    connection.execute("ROLLBACK")
    connection.close()
    at_work.unlink()
    return journal


def name_super_journal(journal: Path, victim: str) -> None:
    """Let a journal say that it is one of several, which another file lists."""
    name = victim.encode()
    with journal.open("ab") as file:
        file.write(struct.pack(">I", 0xFFFFFFFF) + name)  # in place of a page's number
        file.write(struct.pack(">II", len(name), sum(struct.unpack(f"{len(name)}b", name)) & 0xFFFFFFFF) + MAGIC)


def test_a_commit_that_was_cut_short_is_undone_on_a_copy(tmp_path: Path):
    path = tmp_path / "a.tbd"
    journal = hot(path)
    before = path.read_bytes(), journal.read_bytes()

    assert load(path).run.model == "toy"
    assert (path.read_bytes(), journal.read_bytes()) == before


@pytest.mark.parametrize("name", ["victim.txt", "{folder}/victim.txt", "{folder}/opfer-ü-日本.txt"])
def test_a_journal_that_names_another_file_is_refused_and_the_file_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.chdir(tmp_path)
    victim = Path(name.format(folder=tmp_path))
    victim.write_text("precious")
    path = tmp_path / "a.tbd"
    name_super_journal(hot(path), str(victim))

    with pytest.raises(RecordingFormatError, match="names another file"):
        load(path)

    assert victim.read_text() == "precious"


def test_sqlite_itself_deletes_the_file_that_such_a_journal_names(tmp_path: Path):
    """The judge of the test above: without the refusal the file would be gone."""
    victim, path = tmp_path / "victim.txt", tmp_path / "a.tbd"
    victim.write_text("precious")
    name_super_journal(hot(path), str(victim))

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT * FROM run").fetchall()

    assert not victim.exists()


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "dangling link", "too large"])
def test_a_journal_that_is_no_plain_file_of_its_databases_size_is_refused(tmp_path: Path, kind: str):
    path, other = tmp_path / "a.tbd", tmp_path / "other"
    journal = hot(path)
    plain = journal.read_bytes()
    journal.unlink()
    if kind == "fifo":
        os.mkfifo(journal)
    elif kind == "folder":
        journal.mkdir()
    elif kind == "too large":
        journal.write_bytes(plain + bytes(2 * path.stat().st_size))
    else:
        journal.symlink_to(other)
        if kind == "link":
            other.write_bytes(plain)

    with pytest.raises(RecordingFormatError, match="-journal"):
        load(path)

    if kind == "link":
        assert other.read_bytes() == plain


def test_no_room_for_a_copy_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, alone = tmp_path / "a.tbd", tmp_path / "alone.tbd"
    hot(path)
    save(Recording(run()), alone)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))

    with pytest.raises(RecordingFormatError, match=f"cannot read {path}: No such file or directory"):
        load(path)

    assert load(alone).run.model == "toy"  # without a journal no copy is needed
