"""A thread's number, reported in part, is the one Python has for it."""

import threading
from pathlib import Path

from tbdprof.collect.activity import threads


def test_a_running_threads_number_is_found_from_its_lower_half() -> None:
    here = threading.get_ident()
    assert threads.whole([here & 0xFFFFFFFF]) == {here & 0xFFFFFFFF: here}


def test_of_several_places_it_is_the_one_that_names_itself(tmp_path: Path) -> None:
    here, elsewhere = threading.get_ident(), 0x123400000000 | threading.get_ident() & 0xFFFFFFFF
    maps = tmp_path / "maps"
    maps.write_text(f"{elsewhere:x}-{elsewhere + 4096:x} rw-p 0\n{here:x}-{here + 4096:x} rw-p 0\n")
    assert threads.whole([here & 0xFFFFFFFF], maps) == {here & 0xFFFFFFFF: here}


def test_what_fits_no_place_or_several_is_left_out(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f1000000000-7f1000002000 rw-p 00000000 00:00 0\n"
        "7f2000001000-7f2000002000 rw-p 00000000 00:00 0 [stack]\n"
        "7f3000000000-7f3000001000 r--p 00000000 00:00 0 /lib/libc.so.6\n"
    )
    # 0x0800 is in the first alone (the third cannot be written to), 0x1800 in the first two, 0x2800 in none.
    assert threads.whole([0x0800, 0x1800, 0x2800], maps) == {0x0800: 0x7F1000000800}
    assert threads.whole([0x0800], tmp_path / "absent") == {}
