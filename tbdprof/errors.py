"""Errors whose message is one line for the person at the terminal: what is wrong and what to do."""


class TbdprofError(Exception):
    """Report a problem the user can act on; the command line prints it and exits with `exit_code`."""

    exit_code = 1


class UsageError(TbdprofError):
    """Report a request that cannot be carried out as it was typed."""

    exit_code = 2


class UnavailableError(TbdprofError):
    """Report a framework, device, permission or instrument that is not to be had here."""


class RecordingFormatError(TbdprofError):
    """Report a file that is no recording, is damaged, or was written by a newer version."""


class DeviceMemoryError(TbdprofError):
    """Report that the training ran out of memory; `keeps` is why this process cannot let go of what it has."""

    keeps: str | None = None


class DataError(TbdprofError):
    """Report a file of a data set that is missing, broken, or says what cannot be."""
