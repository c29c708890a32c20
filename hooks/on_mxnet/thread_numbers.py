"""How MXNet's profiler numbers threads."""

_WORD = (1 << 64) - 1
# Constants of libstdc++'s `std::_Hash_bytes` (MurmurHash, 64 bits), with the seed of `std::hash`.
_SEED, _FACTOR = 0xC70F6907, 0xC6A4A7935BD1E995


def hashed(thread: int) -> int:
    """Return `std::hash` of a thread's number, which is MXNet's profiler's number for it, signed as in records."""
    mixed = _mix(thread * _FACTOR & _WORD) * _FACTOR & _WORD
    value = (_SEED ^ 8 * _FACTOR & _WORD ^ mixed) * _FACTOR & _WORD
    value = _mix(_mix(value) * _FACTOR & _WORD)
    return value - (1 << 64) if value >> 63 else value


def _mix(word: int) -> int:
    return word ^ word >> 47
