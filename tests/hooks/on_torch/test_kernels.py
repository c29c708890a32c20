"""What runs in a kernels window, where, and what it computes: against hand figures and torch's own counter."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode
from torch_nets import Checkpointed

from tbdprof import suite
from tbdprof.analysis.kernels.flops import count
from tbdprof.errors import UnavailableError
from tbdprof.facts.records import Operation, Phase, SpanKind, Strings
from tbdprof.facts.rows import Table
from tbdprof.facts.work import Work, parse, text
from tbdprof.hooks.on_torch import hook
from tbdprof.hooks.on_torch.facade import TorchHook
from tbdprof.hooks.on_torch.flops import works

BOTH = {Phase.FORWARD, Phase.BACKWARD}
IN_BACKWARD = {Phase.BACKWARD, Phase.RECOMPUTE}

Step = Callable[[], object]


@dataclass
class Kernels:
    spans: Table
    marks: list[int]
    missing: dict[str, str]
    strings: Strings

    def __post_init__(self) -> None:
        self.by_id = {int(row["id"]): row for row in self.spans}

    def around(self, row: Any) -> Iterator[Any]:
        """The spans a span lies in, the innermost first."""
        while row["parent"] >= 0:
            row = self.by_id[int(row["parent"])]
            yield row

    def operators(self, name: str) -> list[Any]:
        return [row for row in self.spans if self.strings[row["name"]] == name]

    def counted(self) -> list[tuple[Any, Work]]:
        """The spans that have a work and lie in none that has, with their work."""
        return [
            (row, parse(self.strings[row["work"]]))
            for row in self.spans
            if row["work"] >= 0 and all(each["work"] < 0 for each in self.around(row))
        ]

    def products(self) -> list[tuple[Any, Work, int]]:
        """What has products, and how many FLOPs of them."""
        rows = [(row, work, count(work)) for row, work in self.counted()]
        return [(row, work, flops.model) for row, work, flops in rows if flops is not None and flops.model]

    def model_flops(self, *phases: Phase) -> int:
        return sum(flops for row, _, flops in self.products() if not phases or row["phase"] in phases)

    def layer(self, row: Any) -> str | None:
        inside = next((each for each in self.around(row) if each["kind"] == SpanKind.LAYER), None)
        if inside is None and row["forward"] >= 0:
            same = self.spans[(self.spans["forward"] == row["forward"]) & (self.spans["phase"] == Phase.FORWARD)]
            inner = [next((x for x in self.around(r) if x["kind"] == SpanKind.LAYER), None) for r in same]
            inside = next((each for each in reversed(inner) if each is not None), None)
        return None if inside is None else self.strings[inside["name"]]

    def own_ns(self) -> int:
        """Operators' time, each without the operators inside it."""
        is_operator = self.spans["kind"] == SpanKind.OPERATOR
        outermost = [
            row
            for row in self.spans[is_operator]
            if all(each["kind"] != SpanKind.OPERATOR for each in self.around(row))
        ]
        return sum(int(row["end_ns"] - row["start_ns"]) for row in outermost)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def record(model: nn.Module, optimizer: torch.optim.Optimizer, step: Step, steps: int = 1) -> Kernels:
    torch_hook = hook()
    torch_hook.attach()
    torch_hook.watch([model], [optimizer])
    step()
    try:
        return recorded(torch_hook, step, steps)
    finally:
        torch_hook.close()


def recorded(torch_hook: TorchHook, step: Step, steps: int = 1) -> Kernels:
    torch_hook.start("kernels")
    for _ in range(steps):
        step()
        torch_hook.mark_step()
    torch_hook.stop()
    strings = Strings()
    drained = torch_hook.drain(strings)
    assert set(drained.tables) <= {"span"}
    return Kernels(drained.tables["span"], list(drained.marks), dict(drained.missing), strings)


def trained(model: nn.Module, *inputs: torch.Tensor, autocast: bool = False) -> tuple[Kernels, int]:
    """A step's kernels, and torch's own count of its FLOPs."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            outputs = model(*inputs)
        outputs = outputs[0] if isinstance(outputs, tuple) else outputs
        outputs.float().pow(2).mean().backward()
        optimizer.step()

    kernels = record(model, optimizer, step)
    with FlopCounterMode(display=False) as counter:
        step()
    return kernels, counter.get_total_flops()


def resnet50(batch_size: int, *images: int) -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    config = suite.configure(suite.find("resnet50"), batch_size=batch_size, options={"image_size": 64})
    workload: Any = suite.build("resnet50", "torch", config)
    if images:
        workload = replace(workload, batches=repeat((torch.randn(batch_size, 3, *images), workload.inputs[1])))
    return workload.model, workload.optimizer, workload.step


# Products of one image: the stem at half the side, then for each stage its blocks' 1×1, 3×3, 1×1 and the shortcut.
def resnet50_macs(height: int, width: int) -> tuple[int, int]:
    """Return the stem's MACs of one image, and those of all other layers."""
    stem = 3 * 64 * 49 * (height // 2) * (width // 2)
    rest, inputs = 2048 * 1000, 64
    for place, (blocks, inner) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        here = (height >> (place + 2)) * (width >> (place + 2))
        before = here if place == 0 else 4 * here  # the first 1×1 works on the larger maps, the 3×3 has the stride
        rest += inputs * inner * before + (9 * inner * inner + inner * 4 * inner + inputs * 4 * inner) * here
        rest += (blocks - 1) * (4 * inner * inner + 9 * inner * inner + inner * 4 * inner) * here
        inputs = 4 * inner
    return stem, rest


@pytest.mark.parametrize(("height", "width"), [(64, 64), (64, 96)])
def test_resnet50s_products_are_three_times_its_macs_but_for_the_images_gradient(height: int, width: int) -> None:
    kernels = record(*resnet50(2, height, width))
    stem, rest = resnet50_macs(height, width)
    assert kernels.model_flops() == 2 * 2 * (2 * stem + 3 * rest)


def test_the_hand_figure_is_the_published_one_at_224_pixels() -> None:
    stem, rest = resnet50_macs(224, 224)
    assert 2 * (2 * stem + 3 * rest) == 24_299_077_632


def test_every_convolution_and_dense_layer_of_resnet50_is_named_forward_and_backward() -> None:
    model, optimizer, step = resnet50(1)
    kernels = record(model, optimizer, step)
    phases: dict[str | None, set[Phase]] = {}
    for row, _, _ in kernels.products():
        phases.setdefault(kernels.layer(row), set()).add(Phase(row["phase"]))
    wanted = {name for name, module in model.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)}
    assert len(wanted) == 53 + 1
    assert phases == dict.fromkeys(wanted, BOTH)


def test_everything_resnet50_does_with_elements_has_a_count() -> None:
    kernels = record(*resnet50(1))
    assert [work for _, work in kernels.counted() if count(work) is None] == []
    names = {(work.name, work.backward) for _, work in kernels.counted()}
    assert names >= {(name, way) for name in ("batch_norm", "relu", "max_pool") for way in (False, True)}
    assert all(work.moved_bytes for _, work in kernels.counted() if work.sizes.get("elements"))


def test_operators_cover_most_of_a_step() -> None:
    kernels = record(*resnet50(8))
    root = kernels.spans[kernels.spans["parent"] < 0]
    assert kernels.own_ns() / (root["end_ns"].max() - root["start_ns"].min()) > 0.9


def test_a_grouped_dilated_convolution_and_a_transposed_one_are_right_by_hand() -> None:
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2, padding=2, dilation=2, groups=2),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 6, (3, 2), stride=2, padding=1, output_padding=1, groups=2),
    )
    kernels, _ = trained(model, torch.randn(2, 4, 9, 11))
    # Both weights have 144 elements, laid at 2 · 5·6 places. The images need no gradient.
    assert [work.sizes["positions"] for _, work, _ in kernels.products()] == [60] * 4
    assert kernels.model_flops(Phase.FORWARD) == 2 * (2 * 144 * 60)
    assert kernels.model_flops(Phase.BACKWARD) == (1 + 2) * (2 * 144 * 60)
    outputs = [2 * 8 * 5 * 6, 2 * 6 * 10 * 11]
    assert sorted(work.sizes["bias"] for _, work, _ in kernels.products()) == sorted(2 * outputs)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Conv2d(3, 8, 3, dilation=2), nn.ConvTranspose2d(8, 4, 3, stride=2)), (2, 3, 9, 11)),
        (nn.Sequential(nn.Conv1d(3, 8, 3, padding="same"), nn.Conv1d(8, 4, 2, stride=2)), (2, 3, 12)),
        (nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2, bias=False)), (3, 5, 6)),
        (nn.GRU(5, 6), (3, 2, 5)),
        pytest.param(
            nn.LSTM(5, 6, proj_size=2), (3, 2, 5), marks=pytest.mark.filterwarnings("ignore:LSTM with projections")
        ),
        (nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1), (7, 2, 16)),
    ],
    ids=["convolutions", "in one dimension", "dense", "gru", "projected lstm", "transformer"],
)
def test_products_are_those_that_torchs_own_counter_counts(model: nn.Module, shape: tuple[int, ...]) -> None:
    kernels, counted = trained(model, torch.randn(shape))
    assert counted > 0
    assert kernels.model_flops() == counted


def test_a_product_reported_without_one_of_its_factors_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(work: Work) -> str:
        return text(replace(work, sizes={**work.sizes, "batch": 1}) if "batch" in work.sizes else work)

    works.kind_and_text.cache_clear()
    monkeypatch.setattr(works, "text", forgetful)
    kernels, counted = trained(nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1), torch.randn(7, 2, 16))
    works.kind_and_text.cache_clear()
    assert kernels.model_flops() != counted


def test_products_of_a_compiled_model_are_in_their_layers() -> None:
    model, batch = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), torch.randn(3, 8)
    compiled = torch.compile(model, backend="aot_eager")

    def step() -> None:
        compiled(batch).sum().backward()

    kernels = record(model, torch.optim.SGD(model.parameters(), 0.1), step)
    found: dict[tuple[str | None, Phase], int] = defaultdict(int)
    for row, _, flops in kernels.products():
        found[kernels.layer(row), Phase(row["phase"])] += flops
    first, last = 2 * 3 * 8 * 16, 2 * 3 * 16 * 4  # the batch needs no gradient
    assert found == {
        ("0", Phase.FORWARD): first,
        ("0", Phase.BACKWARD): first,
        ("2", Phase.FORWARD): last,
        ("2", Phase.BACKWARD): 2 * last,
    }


def test_under_vmap_products_count_all_samples() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 5))
    images, samples = torch.randn(7, 1, 3, 8, 8), 7

    def step() -> None:
        torch.vmap(model)(images).sum().backward()

    kernels = record(model, torch.optim.SGD(model.parameters(), 0.1), step)
    products = 2 * samples * 36 * 4 * 27, 2 * samples * 4 * 36 * 5
    assert kernels.model_flops(Phase.FORWARD) == sum(products)
    assert kernels.model_flops(Phase.BACKWARD) == products[0] + 2 * products[1]  # the images have no gradient


class Orthogonalized(torch.optim.Optimizer):
    """Newton and Schulz's iteration, as people write Muon themselves."""

    def __init__(self, parameters: Iterator[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for weight in self.param_groups[0]["params"]:
            near = weight.grad / weight.grad.norm()
            for _ in range(5):
                square = near @ near.T
                near = 3.4445 * near + (-4.775 * square + 2.0315 * square @ square) @ near
            weight.sub_(near, alpha=0.02)


@pytest.mark.parametrize("optimizer", [torch.optim.Muon, Orthogonalized])
def test_products_of_an_update_are_those_of_its_iteration(optimizer: type[torch.optim.Optimizer]) -> None:
    model, batch = nn.Linear(32, 16, bias=False), torch.randn(8, 32)
    made = optimizer(model.parameters())

    def step() -> None:
        model(batch).sum().backward()
        made.step()
        made.zero_grad()

    kernels = record(model, made, step)
    assert kernels.model_flops(Phase.UPDATE) == 5 * 2 * (16 * 32 * 16 + 16 * 16 * 16 + 16 * 16 * 32)
    assert kernels.model_flops(Phase.FORWARD, Phase.BACKWARD) == 2 * (2 * 8 * 32 * 16)


def test_an_lstm_of_two_layers_in_two_directions_is_right_by_hand() -> None:
    kernels, _ = trained(nn.LSTM(5, 6, num_layers=2, bidirectional=True), torch.randn(3, 2, 5))
    gates, steps = 4 * 6, 3 * 2
    matrices = 2 * (gates * (5 + 6) + gates * (12 + 6))
    assert {work.operation for _, work, _ in kernels.products()} == {Operation.RECURRENT}
    assert kernels.model_flops(Phase.FORWARD) == 2 * matrices * steps
    assert kernels.model_flops(Phase.BACKWARD) == 2 * kernels.model_flops(Phase.FORWARD)


def test_fused_attention_adds_to_torchs_count_what_torch_leaves_out_on_a_cpu() -> None:
    width, heads, length, batch = 16, 4, 7, 2
    kernels, counted = trained(
        nn.TransformerEncoderLayer(width, heads, 32, dropout=0.0), torch.randn(length, batch, width)
    )
    scores = batch * heads * length * length
    forward = 2 * scores * 2 * (width // heads)
    attention = [(row, flops) for row, work, flops in kernels.products() if work.operation is Operation.ATTENTION]
    assert [flops for _, flops in attention] == [forward, 2 * forward]
    assert [kernels.layer(row) for row, _ in attention] == ["self_attn", "self_attn"]
    assert kernels.model_flops() == counted + 3 * forward


def test_autocast_products_are_bf16_and_weights_are_cast() -> None:
    kernels, counted = trained(nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4)), torch.randn(3, 8), autocast=True)
    assert {work.precision for _, work, _ in kernels.products()} == {"bf16"}
    assert kernels.model_flops() == counted
    assert Operation.CAST in {work.operation for _, work in kernels.counted()}


class Multiplied(nn.Module):
    """Products that torch is asked for by their own names, of tensors in full precision."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 4, 5))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return torch.addmm(torch.zeros(5), torch.bmm(given, self.weight)[0], torch.ones(5, 5))


def test_a_product_that_autocast_asks_for_again_is_reported_once_and_in_the_precision_it_is_computed_in() -> None:
    kernels, counted = trained(Multiplied(), torch.randn(2, 3, 4), autocast=True)
    assert {work.precision for _, work, _ in kernels.products()} == {"bf16"}
    assert kernels.model_flops() == counted


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_products_are_counted_again_as_recompute(reentrant: bool) -> None:
    kernels, counted = trained(Checkpointed(reentrant=reentrant), torch.randn(2, 3, 8, 8))
    again = [(kernels.layer(row), flops) for row, _, flops in kernels.products() if row["phase"] == Phase.RECOMPUTE]
    assert again == [("inner.0", 2 * (8 * 8 * 9) * (2 * 4 * 4))]
    assert kernels.model_flops() == counted


@pytest.mark.parametrize(
    ("how", "operator", "elements"),
    [
        ({}, "aten::lerp_", [32, 4]),
        ({"foreach": True}, "aten::_foreach_lerp_", [36]),
        ({"fused": True}, "aten::_fused_adam_", [36]),
    ],
)
def test_what_an_optimizer_does_is_reported_as_update(how: dict[str, bool], operator: str, elements: list[int]) -> None:
    model = nn.Linear(8, 4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, **how)  # type: ignore[arg-type]

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()

    kernels = record(model, optimizer, step)
    found = [(row, work) for row, work in kernels.counted() if kernels.strings[row["name"]] == operator]
    assert [work.sizes["elements"] for _, work in found] == elements
    assert {Phase(row["phase"]) for row, _ in found} == {Phase.UPDATE}


def test_making_the_next_batch_is_a_phase_of_its_own() -> None:
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches = iter(DataLoader(TensorDataset(torch.randn(64, 8)), 4))

    def step() -> None:
        (rows,) = next(batches)
        optimizer.zero_grad()
        model(rows).sum().backward()
        optimizer.step()

    kernels = record(model, optimizer, step, steps=2)
    stacked = kernels.operators("aten::stack")
    assert [Phase(row["phase"]) for row in stacked] == [Phase.DATA] * 2
    assert {Phase(row["phase"]) for row, _, _ in kernels.products()} == BOTH


def test_a_range_named_like_an_operator_is_none() -> None:
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        with torch.profiler.record_function("mm"):
            model(torch.randn(2, 8)).sum().backward()

    kernels = record(model, optimizer, step)
    assert [(row["kind"], row["work"]) for row in kernels.operators("mm")] == [(SpanKind.PHASE, -1)]


def test_marks_are_in_order_and_spans_are_well_formed() -> None:
    kernels = record(*resnet50(1), steps=2)
    assert len(kernels.marks) == 2
    assert kernels.missing == {}
    for row in kernels.spans:
        assert row["start_ns"] <= row["end_ns"]
        for around in list(kernels.around(row))[:1]:
            assert around["thread"] == row["thread"]
            assert around["start_ns"] <= row["start_ns"]
            assert row["end_ns"] <= around["end_ns"]
    first = kernels.spans["last_sequence"] < kernels.marks[0]
    names = [
        [kernels.strings[row["work"]] for row in kernels.spans[part] if row["work"] >= 0] for part in (first, ~first)
    ]
    assert names[0] == names[1]


def test_an_operator_that_goes_on_when_the_window_ends_ends_with_it() -> None:
    opened = []

    def step() -> None:
        opened.append(torch.profiler.record_function("goes on").__enter__())
        model(torch.randn(2, 8)).sum().backward()

    model = nn.Linear(8, 4)
    kernels = record(model, torch.optim.SGD(model.parameters(), 0.1), step)
    for each in reversed(opened):
        each.__exit__(None, None, None)
    (open_one,) = kernels.operators("goes on")
    (product,) = kernels.operators("aten::addmm")
    assert kernels.spans["end_ns"].min() > 0
    assert open_one["start_ns"] <= product["start_ns"] < product["end_ns"] <= open_one["end_ns"]


def test_no_owner_is_read_and_nothing_is_marked_on_an_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    from tbdprof.hooks.on_torch.memory import existing
    from tbdprof.hooks.on_torch.watch import owners

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("owners were read")

    for name in ("everything", "inputs", "gradients_of", "state"):
        monkeypatch.setattr(owners, name, refuse)
    for name in ("blocks", "tensors", "uncounted"):
        monkeypatch.setattr(existing, name, refuse)
    model, optimizer, step = resnet50(1)
    assert len(record(model, optimizer, step).spans) > 1000


def test_another_active_profiler_is_refused() -> None:
    torch_hook = hook()
    torch_hook.attach()
    with torch.profiler.profile(acc_events=True), pytest.raises(UnavailableError, match="kernels window"):
        torch_hook.start("kernels")
    torch_hook.close()


def test_a_profiler_that_takes_over_within_the_window_is_reported() -> None:
    model = nn.Linear(8, 4)
    torch_hook = hook()
    torch_hook.attach()
    torch_hook.watch([model], [torch.optim.SGD(model.parameters(), 0.1)])
    torch_hook.start("kernels")
    with torch.profiler.profile(acc_events=True):
        model(torch.randn(2, 8))
    torch_hook.mark_step()
    torch_hook.stop()
    drained = torch_hook.drain(Strings())
    torch_hook.close()
    assert drained.tables == {}
    assert "another torch profiler" in drained.missing["kernels"]


def test_training_is_bit_identical_with_and_without_the_window_and_nothing_stays() -> None:
    def train(*, watched: bool) -> tuple[list[torch.Tensor], nn.Module]:
        torch.manual_seed(7)
        model, optimizer, step = resnet50(2)
        if watched:
            record(model, optimizer, step, steps=2)
        else:
            for _ in range(3):
                step()
        return [value.clone() for value in model.state_dict().values()], model

    bare, _ = train(watched=False)
    seen, model = train(watched=True)
    assert all(torch.equal(one, other) for one, other in zip(bare, seen, strict=True))
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
    assert torch._C._autograd._profiler_type() == torch._C._profiler.ActiveProfilerType.NONE


def test_a_memory_window_after_it_reads_owners_again() -> None:
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    torch_hook = hook()
    torch_hook.attach()
    torch_hook.watch([model], [optimizer])

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()

    step()
    recorded(torch_hook, step)
    torch_hook.start("memory")
    step()
    torch_hook.mark_step()
    torch_hook.stop()
    tables = torch_hook.drain(Strings()).tables
    torch_hook.close()
    assert len(tables["owner"]) > 0
    assert len(tables["allocation"]) > 0
    assert set(tables["span"]["work"]) == {-1}
    assert set(tables["span"]["operation"]) <= {
        Operation.OTHER,
        Operation.CAST,
        Operation.ACCUMULATE,
        Operation.BOOKKEEPING,
    }
