"""Each loop runs once, whoever asks for its outcome; a judge of free threads may have its loop run again."""

from collections.abc import Callable

import pytest
from judges.process import Outcome, outcome_of

TRIES = 3
KNOWN: dict[tuple[str, str], Outcome] = {}


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    folder = tmp_path_factory.mktemp("judges")

    def once(module: str, loop: str, *, threads: int = 1) -> Outcome:
        if (module, loop) not in KNOWN:
            KNOWN[module, loop] = outcome_of(module, loop, folder, threads=threads)
        return KNOWN[module, loop]

    return once


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Try a test marked `races` again with new runs; it fails where every try fails."""
    if pyfuncitem.get_closest_marker("races") is None:
        return None
    names = pyfuncitem._fixtureinfo.argnames
    for tries_left in reversed(range(TRIES)):
        try:
            pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
        except AssertionError:
            if not tries_left:
                raise
            KNOWN.clear()
        else:
            break
    return True
