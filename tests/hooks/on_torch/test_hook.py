import io
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn
from torch_nets import Checkpointed
from tqdm import tqdm

from tbdprof.errors import UnavailableError, UsageError
from tbdprof.facts.records import AllocationKind, Operation, Phase, Role, SpanKind, Strings
from tbdprof.facts.rows import Table
from tbdprof.hooks import Setting
from tbdprof.hooks.on_torch import hook
from tbdprof.hooks.on_torch.facade import TorchHook


@dataclass
class Window:
    allocations: Table
    spans: Table
    owners: Table
    marks: list[int]
    missing: dict[str, str]
    strings: Strings

    def span_names(self, kind: SpanKind, phase: Phase | None = None) -> list[str]:
        rows = self.spans[self.spans["kind"] == kind]
        if phase is not None:
            rows = rows[rows["phase"] == phase]
        return [self.strings[i] for i in rows[rows["first_sequence"].argsort()]["name"]]

    def owned(self, role: Role, sequence: int) -> dict[str, int]:
        rows = self.owners[(self.owners["role"] == role) & (self.owners["sequence"] == sequence)]
        return {self.strings[row["name"]]: int(row["bytes"]) for row in rows}

    def bytes_by_phase(self) -> dict[Phase, int]:
        phase_of = {int(row["id"]): Phase(row["phase"]) for row in self.spans} | {-1: Phase.OUTSIDE}
        totals: defaultdict[Phase, int] = defaultdict(int)
        for row in self.allocations[self.allocations["kind"] == AllocationKind.ALLOCATED]:
            totals[phase_of[int(row["span"])]] += int(row["allocated_bytes"])
        return totals


def small_convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(288, 4),
    )


def image_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    images, labels = torch.randn(2, 3, 8, 8), torch.tensor([0, 1])
    optimizer.zero_grad()
    F.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.output = nn.Linear(16, 50, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.output(self.encoder(self.embedding(tokens)))
        return scores


def token_step(model: nn.Module, optimizer: torch.optim.Optimizer, length: int = 7) -> None:
    tokens = torch.randint(0, 50, (3, length))
    optimizer.zero_grad()
    F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    # Threads within an operator allocate scratch that is in the total and in no event.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def attached() -> Iterator[TorchHook]:
    torch_hook = hook()
    torch_hook.attach()
    yield torch_hook
    torch_hook.close()


def record(torch_hook: TorchHook, step: Callable[[], None], steps: int = 2) -> Window:
    torch_hook.start("memory")
    for _ in range(steps):
        step()
        torch_hook.mark_step()
    torch_hook.stop()
    strings = Strings()
    drained = torch_hook.drain(strings)
    tables = drained.tables
    return Window(
        tables["allocation"],
        tables["span"],
        tables["owner"],
        list(drained.marks),
        dict(drained.missing),
        strings,
    )


def differences_from_total(allocations: Table) -> list[int]:
    """The framework's total less the sum of the rows, after every event."""
    live_bytes, found = 0, []
    for row in allocations:
        freed = row["kind"] == AllocationKind.FREED
        live_bytes += int(row["allocated_bytes"]) * (-1 if freed else 1)
        if row["kind"] != AllocationKind.EXISTING:
            found.append(int(row["total_bytes"]) - live_bytes)
    return found


def assert_well_formed(window: Window) -> None:
    by_id = {int(row["id"]): row for row in window.spans}
    assert len(by_id) == len(window.spans)
    for row in window.spans:
        assert row["first_sequence"] < row["last_sequence"]
        assert row["start_ns"] <= row["end_ns"]
        if row["parent"] >= 0:
            parent = by_id[int(row["parent"])]
            assert parent["thread"] == row["thread"]
            assert parent["first_sequence"] < row["first_sequence"]
            assert row["last_sequence"] < parent["last_sequence"]
    for row in window.allocations[window.allocations["span"] >= 0]:
        span = by_id[int(row["span"])]
        assert span["first_sequence"] < row["sequence"] < span["last_sequence"]
    sequences = window.allocations["sequence"][window.allocations["kind"] != 2]
    assert (sequences[1:] > sequences[:-1]).all()
    live: set[int] = set()
    for row in window.allocations:
        if row["kind"] == AllocationKind.FREED:
            live.remove(int(row["address"]))
        else:
            assert int(row["address"]) not in live
            live.add(int(row["address"]))


def test_where_a_script_calls_forward_itself_that_phase_begins_with_the_first_operator(attached: TorchHook) -> None:
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached.watch([model], [optimizer])

    def step() -> None:
        optimizer.zero_grad()
        model.forward(torch.ones(2, 8)).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    window = record(attached, step)
    assert window.span_names(SpanKind.PHASE, Phase.FORWARD) == ["forward"] * 2
    outputs, loss, its_gradient = 2 * 4, 1, 1  # backward() makes the last one before the engine runs
    assert window.bytes_by_phase()[Phase.FORWARD] == 2 * 4 * (outputs + loss + its_gradient)


def test_every_event_of_a_convnet_adds_up_to_torchs_total(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    attached.watch([model], [optimizer])
    image_step(model, optimizer)
    window = record(attached, lambda: image_step(model, optimizer))
    found = differences_from_total(window.allocations)
    assert len(found) > 100
    assert set(found) == {0}
    assert_well_formed(window)
    assert window.missing == {}


def test_owners_bytes_are_shape_times_item_size(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    attached.watch([model], [optimizer])
    image_step(model, optimizer)
    window = record(attached, lambda: image_step(model, optimizer))
    at_end = window.marks[-1]
    weights = {"0.weight": 864, "0.bias": 32, "1.weight": 32, "1.bias": 32, "4.weight": 4608}
    weights["4.bias"] = 16
    assert window.owned(Role.WEIGHT, at_end) == weights
    assert window.owned(Role.GRADIENT, at_end) == weights
    assert window.owned(Role.OPTIMIZER_STATE, at_end) == {
        f"{name}/momentum_buffer": size for name, size in weights.items()
    }
    assert window.owned(Role.BUFFER, at_end) == {
        "1.running_mean": 32,
        "1.running_var": 32,
        "1.num_batches_tracked": 8,
    }
    inputs = window.owners[window.owners["role"] == Role.INPUT]
    assert [int(row["bytes"]) for row in inputs] == [2 * 3 * 8 * 8 * 4] * 2
    assert [window.strings[row["shape"]] for row in inputs] == ["[2, 3, 8, 8]"] * 2


def test_gradients_are_read_where_the_update_begins(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached.watch([model], [optimizer])
    window = record(attached, lambda: image_step(model, optimizer))
    update = next(row for row in window.spans if row["phase"] == Phase.UPDATE)
    assert update["kind"] == SpanKind.PHASE
    gradients = window.owners[window.owners["role"] == Role.GRADIENT]
    inside = gradients[
        (gradients["sequence"] > update["first_sequence"]) & (gradients["sequence"] < update["last_sequence"])
    ]
    assert int(inside["bytes"].sum()) == sum(p.numel() * 4 for p in model.parameters())


def test_phases_follow_the_training_step(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached.watch([model], [optimizer])
    window = record(attached, lambda: image_step(model, optimizer), steps=1)
    forward = window.span_names(SpanKind.OPERATOR, Phase.FORWARD)
    assert "aten::conv2d" in forward
    assert "aten::cross_entropy_loss" in forward
    assert "aten::convolution_backward" in window.span_names(SpanKind.OPERATOR, Phase.BACKWARD)
    assert "aten::randn" in window.span_names(SpanKind.OPERATOR, Phase.OUTSIDE)
    assert window.span_names(SpanKind.LAYER) == ["", "0", "1", "2", "3", "4"]
    assert window.span_names(SpanKind.PHASE, Phase.FORWARD) == ["forward"]
    assert window.span_names(SpanKind.PHASE, Phase.BACKWARD)[0] == "backward"


def test_a_backward_operator_shares_its_forward_operators_number(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached.watch([model], [optimizer])
    window = record(attached, lambda: image_step(model, optimizer), steps=1)
    number = {
        window.strings[row["name"]]: int(row["forward"]) for row in window.spans if row["kind"] == SpanKind.OPERATOR
    }
    assert number["aten::conv2d"] == number["aten::convolution_backward"] >= 0
    assert number["torch::autograd::AccumulateGrad"] == -1


def test_convolution_scratch_lives_inside_one_operator(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached.watch([model], [optimizer])
    window = record(attached, lambda: image_step(model, optimizer), steps=1)
    names = {int(row["id"]): window.strings[row["name"]] for row in window.spans}
    rows = window.allocations
    scratch = [row for row in rows if names.get(int(row["span"])) == "aten::convolution_backward"]
    never_tensors = [row for row in scratch if row["was_tensor"] == 0]
    net = sum(int(row["allocated_bytes"]) * (-1 if row["kind"] == AllocationKind.FREED else 1) for row in never_tensors)
    assert len(never_tensors) >= 2
    assert net == 0


def test_shapes_come_from_the_operators_that_read_a_block(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached.watch([model], [optimizer])
    window = record(attached, lambda: image_step(model, optimizer), steps=1)
    made = window.allocations[window.allocations["kind"] == AllocationKind.ALLOCATED]
    shapes = {window.strings[row["shape"]]: int(row["allocated_bytes"]) for row in made}
    assert shapes["[2, 8, 6, 6]"] == 2 * 8 * 6 * 6 * 4
    assert shapes["[4, 288]"] == 4 * 288 * 4


def test_a_tied_embedding_is_named_once_and_adam_keeps_two_copies(attached: TorchHook) -> None:
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    attached.watch([model], [optimizer])
    token_step(model, optimizer)
    window = record(attached, lambda: token_step(model, optimizer))
    assert set(differences_from_total(window.allocations)) == {0}
    assert_well_formed(window)
    weights = window.owned(Role.WEIGHT, window.marks[-1])
    assert weights["embedding.weight"] == 50 * 16 * 4
    assert "output.weight" not in weights
    state = window.owned(Role.OPTIMIZER_STATE, window.marks[-1])
    assert sum(state.values()) == 2 * sum(weights.values()) + 4 * len(weights)
    (adam,) = attached.facts().optimizers
    assert (adam.kind, adam.settings["scalar_bytes"], adam.settings["amsgrad"]) == ("adam", 4, 0)
    assert set(adam.parameters) == set(weights)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_layers_run_again_as_recompute(attached: TorchHook, reentrant: bool) -> None:
    model = Checkpointed(reentrant=reentrant)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached.watch([model], [optimizer])
    image_step(model, optimizer)
    window = record(attached, lambda: image_step(model, optimizer), steps=1)
    assert set(differences_from_total(window.allocations)) == {0}
    assert_well_formed(window)
    assert "aten::conv2d" in window.span_names(SpanKind.OPERATOR, Phase.RECOMPUTE)
    assert window.span_names(SpanKind.LAYER, Phase.RECOMPUTE) == ["inner", "inner.0", "inner.1"]
    assert window.bytes_by_phase()[Phase.RECOMPUTE] >= 2 * (2 * 8 * 4 * 4 * 4)
    assert "CheckpointFunctionBackward" not in window.span_names(SpanKind.OPERATOR)


def test_accumulated_micro_batches_each_have_a_forward_phase(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        for _ in range(3):
            model(torch.randn(2, 3, 8, 8)).sum().backward()
        optimizer.step()

    attached.watch([model], [optimizer])
    window = record(attached, step, steps=1)
    assert set(differences_from_total(window.allocations)) == {0}
    assert_well_formed(window)
    assert window.span_names(SpanKind.PHASE, Phase.FORWARD) == ["forward"] * 3
    accumulations = window.spans["operation"] == Operation.ACCUMULATE
    accumulations &= window.spans["kind"] == SpanKind.OPERATOR
    assert int(accumulations.sum()) == 3 * len(list(model.parameters()))


def test_an_autocast_copy_reports_the_storage_it_was_cast_from(attached: TorchHook) -> None:
    model = nn.Linear(16, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(4, 16)).float().sum()
        loss.backward()
        optimizer.step()

    attached.watch([model], [optimizer])
    window = record(attached, step, steps=1)
    casts = window.spans[window.spans["operation"] == Operation.CAST]
    forward = {int(row["operand"]) for row in casts if row["phase"] == Phase.FORWARD}
    assert model.weight.untyped_storage().data_ptr() in forward


def test_two_models_names_begin_with_their_classes(attached: TorchHook) -> None:
    class Generator(nn.Linear):
        pass

    class Critic(nn.Linear):
        pass

    generator, critic = Generator(4, 6), Critic(6, 1)
    optimizers = [torch.optim.Adam(m.parameters(), 1e-4) for m in (generator, critic)]

    def step() -> None:
        fake = generator(torch.randn(2, 4))
        score = critic(fake)
        (slope,) = torch.autograd.grad(score.sum(), fake, create_graph=True)
        (score.mean() + (slope.norm() - 1) ** 2).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    attached.watch([generator, critic], optimizers)
    window = record(attached, step, steps=1)
    assert set(differences_from_total(window.allocations)) == {0}
    assert_well_formed(window)
    assert set(window.owned(Role.WEIGHT, window.marks[0])) == {
        "generator.weight",
        "generator.bias",
        "critic.weight",
        "critic.bias",
    }
    assert set(window.span_names(SpanKind.LAYER)) == {"generator", "critic"}
    penalty = [n for n in window.span_names(SpanKind.OPERATOR, Phase.FORWARD) if "norm" in n]
    assert penalty, "what follows torch.autograd.grad still belongs to the forward phase"


def test_an_lstm_with_varying_lengths_adds_up(attached: TorchHook) -> None:
    model = nn.LSTM(4, 6, num_layers=2)
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
    lengths = iter([5, 5, 3, 9])

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(next(lengths), 2, 4))[0].sum().backward()
        optimizer.step()

    attached.watch([model], [optimizer])
    step()
    window = record(attached, step, steps=3)
    assert set(differences_from_total(window.allocations)) == {0}
    assert_well_formed(window)


def test_memory_of_another_thread_is_seen(attached: TorchHook) -> None:
    import threading

    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    kept = []

    def step() -> None:
        thread = threading.Thread(target=lambda: kept.append(torch.empty(1000)))
        thread.start()
        thread.join()
        image_step(model, optimizer)

    attached.watch([model], [optimizer])
    image_step(model, optimizer)
    window = record(attached, step, steps=1)
    assert set(differences_from_total(window.allocations)) == {0}
    made = window.allocations[window.allocations["address"] == kept[-1].data_ptr()]
    assert made["allocated_bytes"].tolist() == [4000]


def test_a_block_older_than_the_accounting_is_freed_when_it_dies() -> None:
    old = [torch.empty(1000)]
    address = old[0].untyped_storage().data_ptr()
    torch_hook = hook()
    torch_hook.attach()
    model = nn.Linear(2, 2)
    torch_hook.watch([model], [torch.optim.SGD(model.parameters(), 0.1)])
    window = record(torch_hook, old.clear, steps=1)
    torch_hook.close()
    freed = window.allocations[window.allocations["kind"] == AllocationKind.FREED]
    assert [(int(row["address"]), int(row["allocated_bytes"])) for row in freed] == [(address, 4000)]
    assert differences_from_total(window.allocations) == [0]


def test_models_and_optimizers_are_found_as_they_are_used(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached.watch([], [])
    window = record(attached, lambda: image_step(model, optimizer))
    assert len(window.owned(Role.WEIGHT, window.marks[0])) == 6
    assert window.span_names(SpanKind.LAYER) == ["", "0", "1", "2", "3", "4"] * 2
    assert not nn.modules.module._global_forward_hooks
    assert [optimizer.kind for optimizer in attached.facts().optimizers] == ["sgd"]


def test_a_model_whose_own_method_calls_its_parts_is_found_whole(attached: TorchHook) -> None:
    """Lightning calls `training_step`, and never the module."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.head = nn.Linear(6, 5), nn.Linear(5, 3)

        def training_step(self, batch: torch.Tensor) -> torch.Tensor:
            return self.head(self.hidden(batch)).sum()

    outer = nn.Sequential(Pair(), nn.Linear(1, 1))  # holds both, too
    optimizer = torch.optim.SGD(outer[0].parameters(), 0.1)
    attached.watch([], [])

    def step() -> None:
        batch = torch.randn(2, 6)
        outer[0].training_step(batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    window = record(attached, step)
    weights = window.owned(Role.WEIGHT, window.marks[0])
    assert set(weights) == {"hidden.weight", "hidden.bias", "head.weight", "head.bias"}
    assert set(window.span_names(SpanKind.LAYER)) == {"hidden", "head"}
    owners = window.owners
    assert (owners["bytes"][owners["role"] == Role.INPUT] == 4 * 2 * 6).any()
    assert not nn.modules.module._global_forward_hooks


def test_what_updates_a_given_model_is_found_and_what_does_not_is_not(attached: TorchHook) -> None:
    model, other = small_convnet(), small_convnet()
    optimizer, stranger = torch.optim.Adam(model.parameters()), torch.optim.SGD(other.parameters(), 0.1)
    attached.watch([model], [])

    def step() -> None:
        image_step(other, stranger)
        image_step(model, optimizer)

    window = record(attached, step)
    assert [optimizer.kind for optimizer in attached.facts().optimizers] == ["adam"]
    assert len(attached.facts().parameters) == 9
    weights = window.owned(Role.WEIGHT, window.marks[-1])
    state = window.owned(Role.OPTIMIZER_STATE, window.marks[-1])
    assert sum(state.values()) == 2 * sum(weights.values()) + 4 * len(weights)


def test_a_given_optimizers_model_is_found(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer, stranger = (torch.optim.SGD(model.parameters(), 0.1) for _ in range(2))
    attached.watch([], [optimizer])

    def step() -> None:
        image_step(model, optimizer)
        stranger.step()

    window = record(attached, step)
    assert "4.weight" in window.owned(Role.WEIGHT, window.marks[-1])
    assert window.span_names(SpanKind.LAYER) == ["", "0", "1", "2", "3", "4"] * 2
    assert len(attached.facts().optimizers) == 1
    assert not nn.modules.module._global_forward_hooks


def test_a_layer_that_raises_leaves_the_next_step_well_formed(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached.watch([model], [optimizer])

    def step() -> None:
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            model(torch.randn(2, 3, 9, 9))
        image_step(model, optimizer)

    window = record(attached, step, steps=1)
    assert_well_formed(window)
    assert window.span_names(SpanKind.LAYER) == ["", "0", "1", "2", "3", "4"] * 2
    phases = window.span_names(SpanKind.PHASE, Phase.FORWARD)
    assert [name for name in phases if name == "forward"] == ["forward"] * 2


def test_a_second_session_in_the_process_adds_up_too() -> None:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        torch_hook = hook()
        torch_hook.attach()
        torch_hook.watch([model], [optimizer])
        window = record(torch_hook, lambda: image_step(model, optimizer))
        torch_hook.close()
        image_step(model, optimizer)
        assert set(differences_from_total(window.allocations)) == {0}


def test_no_window_begins_while_the_scripts_own_profiler_is_to_begin(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached.watch([model], [optimizer])
    reports: list[int] = []

    def report(own: torch.profiler.profile) -> None:
        reports.append(len(own.events() or ()))

    once = torch.profiler.schedule(wait=2, warmup=1, active=1, repeat=1)
    with torch.profiler.profile(schedule=once, on_trace_ready=report, acc_events=True) as own:
        for window in ("memory", "kernels"):
            with pytest.raises(UnavailableError, match=f"own torch profiler .* tbdprof's {window} window"):
                attached.start(window)
        for _ in range(5):
            image_step(model, optimizer)
            own.step()
        assert len(reports) == 1
        window = record(attached, lambda: (image_step(model, optimizer), own.step()))

    assert reports[0] > 20
    assert set(differences_from_total(window.allocations)) == {0}


def test_the_thread_that_redraws_progress_bars_keeps_no_hook_on(
    attached: TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tqdm, "monitor_interval", 0.001)
    monkeypatch.setattr(tqdm, "monitor", None)
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached.watch([model], [optimizer])

    with tqdm(total=2, file=io.StringIO()) as bar:
        awake = threading.Event()
        monkeypatch.setattr(tqdm.monitor, "get_instances", lambda: awake.set() or [])
        window = record(attached, lambda: (image_step(model, optimizer), awake.clear(), awake.wait(9), bar.update()))
        tqdm.monitor.exit()

    assert set(differences_from_total(window.allocations)) == {0}
    assert not nn.modules.module._global_forward_pre_hooks


def test_training_is_bit_identical_with_and_without_the_hook() -> None:
    def losses(torch_hook: TorchHook | None) -> list[bytes]:
        torch.manual_seed(3)
        model = small_convnet()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        if torch_hook is not None:
            torch_hook.attach()
            torch_hook.watch([model], [optimizer])
            record(torch_hook, lambda: image_step(model, optimizer), steps=3)
            torch_hook.close()
        else:
            for _ in range(3):
                image_step(model, optimizer)
        return [p.detach().numpy().tobytes() for p in model.parameters()] + [torch.get_rng_state().numpy().tobytes()]

    assert losses(hook()) == losses(None)


def test_another_active_profiler_is_refused(attached: TorchHook) -> None:
    attached.watch([nn.Linear(2, 2)], [])
    with torch.autograd.profiler.profile(), pytest.raises(UnavailableError, match="another torch"):
        attached.start("memory")
    attached.stop()


@pytest.mark.parametrize("window", ["memory", "kernels"])
def test_a_profiler_that_the_script_begins_within_the_window_records_on(attached: TorchHook, window: str) -> None:
    model = nn.Linear(2, 2)
    attached.watch([model], [torch.optim.SGD(model.parameters(), 0.1)])
    attached.start(window)
    with torch.autograd.profiler.profile() as own:
        model(torch.randn(2, 2))
        attached.mark_step()
        attached.stop()
        model(torch.randn(2, 2))
    drained = attached.drain(Strings())
    assert "another torch profiler began" in drained.missing[window]
    assert drained.tables == {}
    assert {event.key: event.count for event in own.key_averages()}["aten::addmm"] == 2


def test_kept_inputs_are_named_and_updates_are_reported(attached: TorchHook) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    images = torch.randn(3, 4)
    updated: list[object] = []
    attached.watch([model], [optimizer], [{"images": images}])
    attached.on_update(updated.append)

    def step() -> None:
        model(images).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    window = record(attached, step)
    assert window.owned(Role.INPUT, window.marks[-1]) == {"input0": 48}
    assert updated == [optimizer, optimizer]
    attached.close()
    optimizer.step()
    assert len(updated) == 2


def test_what_is_no_torch_model_is_refused(attached: TorchHook) -> None:
    with pytest.raises(UsageError, match="str"):
        attached.watch(["resnet"], [])


class Wrapping(torch.optim.Optimizer):
    """Has the shape of Accelerate's: it is an optimizer by its class, but has nothing of one but what it wraps."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def state(self) -> object:
        return self.optimizer.state

    @property
    def param_groups(self) -> object:
        return self.optimizer.param_groups

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        self.optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)


class Averaging(torch.optim.Optimizer):
    """Wraps an optimizer, and keeps a state of its own."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        super().__init__(optimizer.param_groups, {})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        self.optimizer.step(closure)
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter].setdefault("average", torch.zeros_like(parameter)).lerp_(parameter.detach(), 0.1)


class Engine:
    """Wraps a model and is no module."""

    def __init__(self, model: nn.Module) -> None:
        self.module = model


def test_the_optimizer_in_a_wrapper_is_watched_with_its_state(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = torch.optim.Adam(model.parameters())
    wrapped = Wrapping(optimizer)
    attached.watch([Engine(model)], [wrapped, torch.optim.lr_scheduler.StepLR(optimizer, 1)])
    window = record(attached, lambda: image_step(model, wrapped))
    assert [each.kind for each in attached.facts().optimizers] == ["adam"]
    assert window.owned(Role.OPTIMIZER_STATE, window.marks[-1])["0.weight/exp_avg"] == 8 * 3 * 9 * 4


def test_a_wrapper_with_a_state_of_its_own_is_watched_beside_what_it_wraps(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = Averaging(torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
    attached.watch([model], [optimizer])
    window = record(attached, lambda: image_step(model, optimizer))
    state = window.owned(Role.OPTIMIZER_STATE, window.marks[-1])
    assert state["0.weight/average"] == state["0.weight/momentum_buffer"] == 8 * 3 * 9 * 4


def test_a_sparse_gradients_values_and_indices_are_gradients(attached: TorchHook) -> None:
    model = nn.Embedding(50, 16, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    tokens = torch.tensor([1, 2, 3, 3, 7])

    def step() -> None:
        optimizer.zero_grad()
        model(tokens).sum().backward()
        optimizer.step()

    attached.watch([model], [optimizer])
    window = record(attached, step)
    assert window.owned(Role.GRADIENT, window.marks[-1]) == {"weight/values": 5 * 16 * 4, "weight/indices": 5 * 8}


def test_a_step_inside_the_backward_pass_is_reported_after_it(attached: TorchHook) -> None:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    next(model.parameters()).register_post_accumulate_grad_hook(lambda _: optimizer.step())  # the last gradient
    attached.watch([model], [optimizer])
    tasks: list[int] = []
    attached.on_update(lambda _: tasks.append(torch._C._current_graph_task_id()))
    for _ in range(3):
        model(torch.randn(2, 3, 8, 8)).sum().backward()
    assert tasks == [-1, -1]


def test_an_optimizer_that_was_never_made_is_refused(attached: TorchHook) -> None:
    with pytest.raises(UsageError, match="Wrapping"):
        attached.watch([small_convnet()], [Wrapping(None)])  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused_and_nothing_stays_changed() -> None:
    before = dict(os.environ)
    with pytest.raises(UnavailableError, match="no CUDA device"):
        hook().prepare(Setting(device="cuda:1", threads=2))
    assert dict(os.environ) == before


def test_without_torch_the_command_to_type_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UnavailableError, match=r"pip install 'tbdprof\[torch\]'"):
        hook().attach()


def test_out_of_memory_is_reported_in_torchs_words(attached: TorchHook) -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 50)
    message = attached.out_of_memory(raised.value)
    assert message is not None
    assert str(4 << 50) in message
    assert attached.out_of_memory(ValueError("no")) is None


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", False),
        ("CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_what_the_driver_and_its_libraries_have_no_room_for_means_out_of_memory(
    attached: TorchHook, said: str, means: bool
) -> None:
    assert (attached.out_of_memory(RuntimeError(said)) is not None) == means


def test_gradients_that_torchs_profiler_keeps_alive_in_a_memory_window_are_remarked_on(attached: TorchHook) -> None:
    """Every step's gradients are there at the window's end, though nothing but the last step's is held."""
    model = nn.Linear(30, 20, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attached.watch([model], [optimizer])
    batch = torch.randn(4, 30)

    def loss(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.func.functional_call(model, weights, (batch,)).square().mean()

    def plain() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    def transformed() -> None:
        optimizer.zero_grad()
        model.weight.grad = torch.func.grad(loss)({"weight": model.weight.detach()})["weight"]
        optimizer.step()

    kept = {step: record(attached, step, steps=4) for step in (plain, transformed)}
    assert [generations(kept[step]) for step in (plain, transformed)] == [1, 4]
    assert ["transforms" in kept[step].missing for step in (plain, transformed)] == [False, True]


def generations(window: Window) -> int:
    """How many blocks as large as the weight's gradient are live at the window's end, of those made in it."""
    rows = window.allocations[window.allocations["allocated_bytes"] == 30 * 20 * 4]
    kinds = rows["kind"].tolist()
    made = set(rows["address"][rows["kind"] == AllocationKind.ALLOCATED].tolist())
    freed = [row for row in rows if row["kind"] == AllocationKind.FREED and int(row["address"]) in made]
    return int(kinds.count(AllocationKind.ALLOCATED)) - len(freed)
