"""Errors whose message is one line for the person at the terminal: what is wrong and what to do."""


class TbdprofError(Exception):
    """Report a problem the user can act on; the command line prints it and exits with `exit_code`."""

    exit_code = 1


class UsageError(TbdprofError):
    """Report a request that cannot be carried out as it was typed."""

    exit_code = 2


class UnavailableError(TbdprofError):
    """Report a framework, device, permission or instrument that is not available here."""


class RecordingFormatError(TbdprofError):
    """Report a file that is not a recording, is damaged, or was written by a newer version."""


class DeviceMemoryError(TbdprofError):
    """Report that the training ran out of memory; `keeps` says why this process cannot free what it holds."""

    keeps: str | None = None


class DataError(TbdprofError):
    """Report a data set's file that is missing, broken, or has impossible contents."""
