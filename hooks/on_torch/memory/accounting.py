"""Torch's own accounting of CPU memory, which starts when it is switched on."""

import ctypes

import torch

from tbdprof.hooks.on_torch.session.libraries import ERROR, LOG_LEVEL, variable

_FLAG = "FLAGS_caffe2_report_cpu_memory_usage"


def accounting_flag() -> ctypes.c_bool | None:
    """Return torch's switch for counting all CPU memory at all times, or None if it has none."""
    return variable(ctypes.c_bool, _FLAG)


def count_quietly(flag: ctypes.c_bool) -> None:
    """Switch torch's accounting on, and free one older block while warnings are off.

    Torch writes a warning to stderr for the first of every thousand frees of blocks older than its accounting. Such a
    warning reports no fault of the script.
    """
    level = variable(ctypes.c_int, LOG_LEVEL)
    if level is None or flag.value:
        flag.value = True
        return
    older, before = torch.empty(1, device="cpu"), level.value
    flag.value, level.value = True, max(before, ERROR)
    del older
    level.value = before
