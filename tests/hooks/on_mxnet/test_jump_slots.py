import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tbdprof.errors import UnavailableError
from tbdprof.hooks.on_mxnet.memory import jump_slots

SPACING = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)


@pytest.fixture
def library() -> ctypes.CDLL:
    """Return numpy 1's library, which calls functions of its own through jump slots."""
    umath = sys.modules.get("numpy.core._multiarray_umath")
    if umath is None:
        pytest.skip("numpy 2 calls its own functions directly")
    return ctypes.CDLL(umath.__file__)


@SPACING
def one_more(number: float) -> float:
    return number + 1


def address_of(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def test_calls_of_a_patched_function_go_elsewhere_until_it_is_restored(library: ctypes.CDLL) -> None:
    (slot,) = jump_slots.find(library, ["npy_spacing"])
    numbers, epsilon = np.array([1.0, 2.0]), 2.0**-52

    slot.write(address_of(one_more))
    patched = np.spacing(numbers).tolist()
    slot.restore()

    assert patched == [2.0, 3.0]
    assert slot.read() == slot.before
    assert np.spacing(numbers).tolist() == [epsilon, 2 * epsilon]


def test_the_original_can_be_called_through_what_is_found(library: ctypes.CDLL) -> None:
    (slot,) = jump_slots.find(library, ["npy_spacing"])

    assert SPACING(slot.function)(1.0) == 2.0**-52


def test_several_slots_come_in_the_order_asked_for(library: ctypes.CDLL) -> None:
    names = ["npy_spacing", "npy_atan2", "npy_spacingf"]

    found = jump_slots.find(library, names)

    assert [slot.symbol for slot in found] == names
    assert len({slot.address for slot in found}) == 3


def test_a_name_that_ends_another_is_not_taken_for_it(library: ctypes.CDLL) -> None:
    """The text is in the string table, as the tail of a longer name."""
    with pytest.raises(UnavailableError, match="0 jump slots for py_spacing"):
        jump_slots.find(library, ["py_spacing"])


def test_a_slot_that_someone_else_patched_is_refused(library: ctypes.CDLL) -> None:
    (slot,) = jump_slots.find(library, ["npy_spacing"])
    slot.write(address_of(one_more))
    try:
        with pytest.raises(UnavailableError, match="only one can watch at a time"):
            jump_slots.find(library, ["npy_spacing"])
    finally:
        slot.restore()


def test_a_protected_library_is_refused(tmp_path: Path) -> None:
    """Linked with full RELRO the slots are read-only by the time anyone can ask for them."""
    source, built = tmp_path / "twice.c", tmp_path / "twice.so"
    source.write_text("int twice(int a) { return 2 * a; } int call(int a) { return twice(a); }")
    flags = ["-shared", "-fPIC", "-O0", "-Wl,-z,relro,-z,now"]
    try:
        subprocess.run(["cc", *flags, "-o", built, source], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no C compiler here")

    with pytest.raises(UnavailableError, match="cannot be written"):
        jump_slots.find(ctypes.CDLL(str(built)), ["twice"])


def test_it_imports_no_framework() -> None:
    module = "tbdprof.hooks.on_mxnet.memory.jump_slots"
    program = f"import sys, {module}; print([n for n in ('torch', 'mxnet') if n in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert done.stdout == "[]\n"
