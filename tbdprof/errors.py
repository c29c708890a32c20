"""Errors whose message is one line for the person at the terminal: what is wrong and what to do."""


class TbdprofError(Exception):
    """Report a problem the user can act on; the command line prints it and exits with `exit_code`."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        """Take a message; what would break the line or act on a terminal, as in a file's name, is made visible."""
        super().__init__(visible(message))


class UsageError(TbdprofError):
    """Report a request that cannot be carried out as it was typed."""

    exit_code = 2


class DoesNotFitError(UsageError):
    """Report a request that is estimated not to fit into the memory that is there."""


class UnavailableError(TbdprofError):
    """Report a framework, device, permission or instrument that is not available here."""


class RecordingFormatError(TbdprofError):
    """Report a file that is not a recording, is damaged, or was written by a newer version."""


class DeviceMemoryError(TbdprofError):
    """Report that the training ran out of memory; `keeps` says why this process cannot free what it holds."""

    keeps: str | None = None


class DataError(TbdprofError):
    """Report a data set's file that is missing, broken, or has impossible contents."""


def visible(text: str) -> str:
    r"""Return a text in which each character that cannot be printed is its escape: a line feed is `\n`."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
