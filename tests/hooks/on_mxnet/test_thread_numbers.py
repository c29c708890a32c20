"""A thread has the number that MXNet's profiler gives it."""

from tbdprof.hooks.on_mxnet.thread_numbers import hashed


def test_a_hash_is_the_one_mxnets_profiler_wrote() -> None:
    # As MXNet 1.9.1 reported an operator that Python's own thread ran (its engine of one thread).
    assert hashed(139654421117824) == 8153202884320643903


def test_a_hash_beyond_63_bits_is_negative() -> None:
    hashes = [hashed(139654421117824 + 4096 * place) for place in range(64)]
    assert min(hashes) < 0 < max(hashes)
    assert all(-(1 << 63) <= each < 1 << 63 for each in hashes)
