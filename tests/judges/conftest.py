"""Each loop runs once, whoever asks what came of it."""

from collections.abc import Callable

import pytest
from judges.process import Outcome, outcome_of


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    folder = tmp_path_factory.mktemp("judges")
    known: dict[tuple[str, str], Outcome] = {}

    def once(module: str, loop: str, *, threads: int = 1) -> Outcome:
        if (module, loop) not in known:
            known[module, loop] = outcome_of(module, loop, folder, threads=threads)
        return known[module, loop]

    return once
