"""Each loop runs once, whoever asks for its outcome."""

from collections.abc import Callable

import pytest
from judges.process import Outcome, outcome_of

KNOWN: dict[tuple[str, str], Outcome] = {}


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    folder = tmp_path_factory.mktemp("judges")

    def once(module: str, loop: str, *, threads: int = 1) -> Outcome:
        if (module, loop) not in KNOWN:
            KNOWN[module, loop] = outcome_of(module, loop, folder, threads=threads)
        return KNOWN[module, loop]

    return once
