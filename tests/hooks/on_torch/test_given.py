"""What torch's models are given in a step, and where its samples are from; FLOPs against arithmetic."""

from collections.abc import Callable

import known_peaks
import pytest

torch = pytest.importorskip("torch")

import tbdprof  # noqa: E402
from tbdprof.facts.batches import FIRST_SIZE, ONES  # noqa: E402
from tbdprof.facts.records import Strings  # noqa: E402
from tbdprof.hooks import load  # noqa: E402
from tbdprof.results.summary import Summary  # noqa: E402

BATCH, TIME, WIDTH, WORDS = 4, 8, 16, 32
SAMPLES = 50


@pytest.fixture(autouse=True)
def _peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tbdprof.hooks.probing.peaks", None)  # put back at the end
    known_peaks.use()


def profiled(model: object, optimizer: object, step: Callable[[], object], **options: object) -> Summary:
    with tbdprof.profile(model, optimizer, warmup=1, steps=2, **options) as prof:  # type: ignore[arg-type]
        while prof.active:
            step()
            prof.step()
    return prof.summary


def told(summary: Summary) -> tuple[dict[str, float], str]:
    assert summary.throughput is not None
    return dict(summary.throughput.per_step), summary.throughput.samples_from


def test_a_language_model_in_bf16_has_samples_tokens_flops_of_each_and_a_utilization():
    model = torch.nn.Sequential(torch.nn.Embedding(WORDS, WIDTH), torch.nn.Linear(WIDTH, WORDS))
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        with torch.no_grad():
            model(torch.zeros(5, TIME, dtype=torch.long))  # an evaluation, whose forward pass is counted too
        for _ in range(3):  # micro-batches
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.zeros(BATCH, TIME, dtype=torch.long)).sum()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    found = profiled(model, optimizer, step)

    assert told(found) == ({"samples": 3 * BATCH, "tokens": 3 * BATCH * TIME}, FIRST_SIZE)
    use, product = found.utilization, 2 * WIDTH * WORDS
    assert use is not None
    tokens = 3 * BATCH * TIME
    assert use.flops_per_step == tokens * 3 * product + 5 * TIME * product
    assert use.flops_per_unit["tokens"] == use.flops_per_step / tokens
    assert use.flops_per_sample == use.flops_per_step / (3 * BATCH)
    assert (found.precision, use.flop and use.flop.precision) == ("bf16", "bf16")


class Recurrent(torch.nn.Module):  # type: ignore[misc]
    """A language model in the manner of PyTorch's examples."""

    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH)
        self.rnn = torch.nn.GRU(WIDTH, WIDTH, batch_first=batch_first)
        self.decoder = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.decoder(self.rnn(self.embedding(words))[0])
        return made


@pytest.mark.parametrize(
    ("shape", "batch_first", "samples"), [((TIME, BATCH), False, BATCH), ((BATCH, TIME), True, BATCH)]
)
def test_a_recurrent_layer_says_which_axis_is_the_batch(shape: tuple[int, int], batch_first: bool, samples: int):
    model = Recurrent(batch_first=batch_first)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        model(torch.zeros(shape, dtype=torch.long)).sum().backward()
        optimizer.step()

    expected = {"samples": samples, "tokens": BATCH * TIME}
    assert told(profiled(model, optimizer, step)) == (expected, "the batch size of the model's GRU")


def test_the_layout_is_known_in_a_window_that_begins_within_the_models_call():
    model, torch_hook = Recurrent(batch_first=False), load("torch")
    torch_hook.attach()
    torch_hook.watch([model], [])
    within = model.register_forward_pre_hook(lambda *_: torch_hook.start("memory"))  # as a loop by hand begins one
    model(torch.zeros(TIME, BATCH, dtype=torch.long)).sum().backward()
    within.remove()
    torch_hook.mark_step()
    torch_hook.stop()
    given = torch_hook.drain(Strings()).given
    torch_hook.close()

    assert given == [{"samples": BATCH, "tokens": BATCH * TIME}]


def test_an_episode_has_a_sample_for_each_call_and_an_input_without_a_batch_is_one():
    model = torch.nn.Linear(WIDTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        states = (torch.zeros(1, WIDTH) if i % 2 else torch.zeros(WIDTH) for i in range(7))
        sum(model(state).sum() for state in states).backward()
        optimizer.step()

    assert told(profiled(model, optimizer, step)) == ({"samples": 7}, ONES)


def test_samples_that_vmap_takes_apart_count_and_shared_ones_once():
    model = torch.nn.Linear(WIDTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss(weights: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = torch.func.functional_call(model, weights, (sample,)).sum()
        return made

    def step_of(shape: tuple[int, ...], dims: int | None) -> Callable[[], None]:
        def step() -> None:
            weights = {name: weight.detach().expand(5, *weight.shape) for name, weight in model.named_parameters()}
            found = torch.func.vmap(torch.func.grad(loss), (0, dims))(weights, torch.zeros(shape))
            for name, weight in model.named_parameters():
                weight.grad = found[name].mean(0)
            optimizer.step()

        return step

    assert told(profiled(model, optimizer, step_of((5, WIDTH), 0)))[0] == {"samples": 5}  # one for each of five
    assert told(profiled(model, optimizer, step_of((BATCH, WIDTH), None)))[0] == {"samples": BATCH}


def test_inner_gradients_are_no_backward_pass_and_a_closure_is_one():
    model = torch.nn.Linear(WIDTH, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    given = torch.arange(BATCH * WIDTH, dtype=torch.float32).reshape(BATCH, WIDTH).cos()

    def evaluated() -> torch.Tensor:
        model.zero_grad()
        loss = (model(given) - 1).square().sum()
        loss.backward()
        return loss

    assert told(profiled(model, optimizer, lambda: optimizer.step(evaluated))) == ({"samples": BATCH}, FIRST_SIZE)

    def adapted() -> None:
        for _ in range(4):
            torch.autograd.grad(model(given).sum(), list(model.parameters()))
        evaluated()
        torch.optim.SGD(model.parameters(), 0.1).step()

    found = profiled(model, torch.optim.SGD(model.parameters(), 0.1), adapted)
    assert told(found) == ({}, "")
    assert "called 5 times before a backward pass" in found.missing["throughput.samples_per_s"]


def test_a_loader_tells_its_batch_size_where_its_batches_are_of_one_size():
    model = torch.nn.Linear(WIDTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def summary(samples: int) -> Summary:
        data = torch.utils.data.TensorDataset(torch.zeros(samples, WIDTH))
        loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
        with tbdprof.profile(model, optimizer, warmup=1, steps=2) as prof:
            while prof.active:
                for (images,) in loader:
                    model(images).sum().backward()
                    optimizer.step()
                    prof.step()
        return prof.summary

    assert told(summary(10 * BATCH)) == ({"samples": BATCH}, "the loader's batch size")
    short = summary(2 * BATCH + 1)  # each third batch is of one sample
    assert told(short) == ({}, "")
    assert "differ, from 1 to 4 samples" in short.missing["throughput.samples_per_s"]
    assert short.utilization is not None
    assert short.utilization.flops_per_sample == 2 * 2 * WIDTH


def test_a_sampler_that_raises_costs_nothing():
    class Sampler(torch.utils.data.Sampler):  # type: ignore[misc]
        @property
        def batch_size(self) -> int:
            raise RuntimeError("no")

        def __iter__(self):  # type: ignore[no-untyped-def]
            return iter([[0, 0, 0]] * 100)

    model = torch.nn.Linear(WIDTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.utils.data.TensorDataset(torch.zeros(1, WIDTH))
    loader = iter(torch.utils.data.DataLoader(data, batch_sampler=Sampler()))

    def step() -> None:
        model(next(loader)[0]).sum().backward()
        optimizer.step()

    assert told(profiled(model, optimizer, step)) == ({"samples": 3}, FIRST_SIZE)


def test_what_is_said_comes_before_what_is_seen():
    model = torch.nn.Linear(WIDTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        model(torch.zeros(BATCH, WIDTH)).sum().backward()
        optimizer.step()

    found = profiled(model, optimizer, step, samples_per_step=7, unit="frames", precision="tf32")

    assert found.throughput is not None
    assert found.throughput.unit == "frames"
    assert told(found) == ({"samples": BATCH}, FIRST_SIZE)
    assert found.utilization is not None
    assert found.utilization.flops_per_unit["frames"] == pytest.approx(2 * 2 * WIDTH * BATCH / 7)
    assert found.precision == "tf32"
