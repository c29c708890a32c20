"""What is said where TensorFlow has no such device."""

import pytest

tf = pytest.importorskip("tensorflow")
facts = pytest.importorskip("tbdprof.hooks.on_tensorflow.facts")
from tbdprof.errors import UnavailableError, UsageError  # noqa: E402


@pytest.mark.parametrize(
    ("built", "driver", "said"),
    [(False, True, "built without CUDA"), (True, False, "no NVIDIA driver"), (True, True, "and-cuda")],
)
def test_without_a_gpu_it_is_said_what_lacks(
    monkeypatch: pytest.MonkeyPatch, built: bool, driver: bool, said: str
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: built)
    monkeypatch.setattr(facts, "has_driver", lambda: driver)
    with pytest.raises(UnavailableError, match=said):
        facts.choose_device("cuda")
    assert facts.choose_device("auto") == "cpu"


def test_of_fewer_gpus_the_last_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["one", "two"])
    assert facts.choose_device("cuda:1") == "cuda:1"
    with pytest.raises(UnavailableError, match="the last one is cuda:1"):
        facts.choose_device("cuda:2")
    with pytest.raises(UsageError):
        facts.choose_device("gpu")
