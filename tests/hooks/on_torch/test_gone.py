"""A training whose model is gone when its recording ends, as where a function of the script trained it."""

import gc

import known_peaks
import pytest

torch = pytest.importorskip("torch")

import tbdprof  # noqa: E402


@pytest.fixture(autouse=True)
def _peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tbdprof.hooks.probing.peaks", None)  # put back at the end
    known_peaks.use()


def train(prof: tbdprof.Profiler) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        prof.step(2)


def test_parameters_and_optimizer_are_known_though_they_are_gone_at_the_end() -> None:
    gc.collect()
    with tbdprof.profile(framework="torch", warmup=1, steps=2) as prof:
        train(prof)
        gc.collect()

    run = prof.recording.run
    assert not run.complete
    assert [each.name for each in run.parameters if each.trainable] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert [each.kind for each in run.optimizers] == ["adam"]
    assert prof.summary.parameter_count == 8 * 4 + 4 + 4 + 4
