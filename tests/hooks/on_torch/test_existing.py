"""Which storages exist when a memory window begins: torch's own memory is told from memory that others gave it."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tbdprof  # noqa: E402
from tbdprof.hooks.on_torch.memory.existing import is_allocated_by_torch  # noqa: E402
from tbdprof.report.json_report import document  # noqa: E402


def viewed() -> "torch.Tensor":
    tensor = torch.ones(50)
    tensor.numpy()
    return tensor


def loaded() -> "torch.Tensor":
    file = io.BytesIO()
    torch.save(torch.ones(50), file)
    file.seek(0)
    return torch.load(file)


def mapped(folder: Path) -> "torch.Tensor":
    torch.save(torch.ones(50), folder / "ones.pt")
    return torch.load(folder / "ones.pt", mmap=True)


OWN = {
    "new": lambda: torch.ones(50),
    "grown": lambda: torch.ones(2).resize_(50),
    "viewed by numpy": viewed,
    "loaded": loaded,
    "empty": lambda: torch.ones(0).resize_(50),
}
OTHERS = {
    "numpy's": lambda: torch.from_numpy(np.ones(50)),
    "a buffer": lambda: torch.frombuffer(bytearray(400), dtype=torch.float32),
    "shared": lambda: torch.ones(50).share_memory_(),
}


@pytest.mark.parametrize("make", OWN.values(), ids=OWN)
def test_what_torch_allocated_is_its_own(make: Callable[[], "torch.Tensor"]) -> None:
    assert is_allocated_by_torch(make().untyped_storage())


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_what_others_allocated_is_not(make: Callable[[], "torch.Tensor"]) -> None:
    assert not is_allocated_by_torch(make().untyped_storage())


def test_a_mapped_file_is_not(tmp_path: Path) -> None:
    assert not is_allocated_by_torch(mapped(tmp_path).untyped_storage())


def test_weights_that_were_loaded_and_data_that_numpy_views_have_their_roles() -> None:
    file = io.BytesIO()
    torch.save(torch.nn.Linear(32, 8), file)
    file.seek(0)
    net, data = torch.load(file, weights_only=False), torch.ones(64, 32)
    optimizer, view = torch.optim.SGD(net.parameters(), lr=0.1), data.numpy()

    with tbdprof.profile(net, optimizer, warmup=1, steps=2) as profiler:
        while profiler.active:
            net(data).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()

    memory = document(profiler.summary)["memory"]
    assert memory["mismatches"] == 0
    assert memory["roles_max"]["weight"] == (32 + 1) * 8 * 4
    assert memory["roles_max"]["input"] == view.nbytes
    assert memory["roles_max"]["unknown"] == 0
