"""Plain training loops in torch; `profile` stands for `tbdprof.profile`, or for an oracle in its place."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from judges.process import Json, Profile
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from tbdprof import suite

BATCH, SIDE, CLASSES = 4, 16, 10
WORDS, WIDTH, LENGTH = 64, 32, 12


def facts_of(*models: nn.Module, **more: Any) -> Json:
    """Return the shapes of the parameters and the bytes of the buffers, as torch alone reports them."""
    parameters = [parameter for model in models for parameter in model.parameters()]
    buffers = [buffer for model in models for buffer in model.buffers()]
    assert all(parameter.dtype == torch.float32 for parameter in parameters)
    return {
        "parameters": [list(parameter.shape) for parameter in parameters],
        "buffer_bytes": sum(buffer.numel() * buffer.element_size() for buffer in buffers),
        **more,
    }


def small_convnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(16 * 3 * 3, CLASSES),
    )


def image_batch() -> tuple[Tensor, Tensor]:
    return torch.randn(BATCH, 3, SIDE, SIDE), torch.randint(CLASSES, (BATCH,))


def train(
    profile: Profile,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[], Tensor],
    *,
    set_to_none: bool = True,
    after: Callable[[int], object] = lambda _: None,
) -> None:
    """Train a model step by step; `after` is called with the step's number at its end."""
    with profile(model, optimizer) as prof:
        step = 0
        while prof.active:
            optimizer.zero_grad(set_to_none=set_to_none)
            loss_of().backward()
            optimizer.step()
            after(step)
            step += 1
            prof.step()


def convnet(profile: Profile) -> Json:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = image_batch()
    train(profile, model, optimizer, lambda: functional.cross_entropy(model(images), labels))
    return facts_of(model)


def fresh_batches(profile: Profile) -> Json:
    model = small_convnet()
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
    with profile(model, optimizer) as prof:
        while prof.active:
            images, labels = image_batch()
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            prof.step(len(images))
    return facts_of(model)


def loaded(profile: Profile, workers: int) -> Json:
    """Batches come from a data loader; those of a worker process lie in memory shared with it."""
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    data = TensorDataset(torch.randn(16 * BATCH, 3, SIDE, SIDE), torch.randint(CLASSES, (16 * BATCH,)))
    with profile(model, optimizer) as prof:
        for images, labels in DataLoader(data, BATCH, num_workers=workers):
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            prof.step(len(images))
            if not prof.active:
                break
    return facts_of(model)


def loaded_by_a_worker(profile: Profile) -> Json:
    return loaded(profile, 1)


def loaded_in_process(profile: Profile) -> Json:
    return loaded(profile, 0)


def gradients_kept(profile: Profile) -> Json:
    model = small_convnet()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    images, labels = image_batch()
    train(profile, model, optimizer, lambda: functional.cross_entropy(model(images), labels), set_to_none=False)
    return facts_of(model)


def flat_weights(profile: Profile) -> Json:
    """All weights lie in one storage, as cuDNN wants those of a recurrent layer to."""
    model = small_convnet()
    weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    for weight, part in zip(
        model.parameters(), weights.split([each.numel() for each in model.parameters()]), strict=True
    ):
        weight.data = part.view_as(weight)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = image_batch()
    train(profile, model, optimizer, lambda: functional.cross_entropy(model(images), labels))
    return facts_of(model)


def accumulation(profile: Profile) -> Json:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    with profile(model, optimizer) as prof:
        while prof.active:
            optimizer.zero_grad()
            for _ in range(3):
                images, labels = image_batch()
                (functional.cross_entropy(model(images), labels) / 3).backward()
            optimizer.step()
            prof.step(3 * BATCH)
    return facts_of(model)


def by_hand(profile: Profile) -> Json:
    """There is no optimizer, as in torch's example of a regression."""
    model = small_convnet()
    with profile(model) as prof:
        while prof.active:
            images, labels = image_batch()
            model.zero_grad()
            functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
            for parameter in model.parameters():
                parameter.data.add_(-0.1 * parameter.grad)
            prof.step(len(images))
    return facts_of(model)


def graph(profile: Profile) -> Json:
    """A convolution on a graph, whose sparse matrix is older than the loop."""
    model = nn.Linear(WIDTH, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    nodes, neighbours = torch.randn(BATCH, WIDTH), torch.eye(BATCH).to_sparse()
    labels = torch.randint(CLASSES, (BATCH,))
    train(profile, model, optimizer, lambda: functional.cross_entropy(neighbours @ model(nodes), labels))
    return facts_of(model)


def without_a_module(profile: Profile) -> Json:
    """There is no optimizer and no module, as in torch's tutorial."""
    weight, bias = torch.randn(WIDTH, CLASSES, requires_grad=True), torch.zeros(CLASSES, requires_grad=True)
    with profile(framework="torch") as prof:
        while prof.active:
            inputs, labels = torch.randn(BATCH, WIDTH), torch.randint(CLASSES, (BATCH,))
            functional.cross_entropy(inputs @ weight + bias, labels).backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                for each in (weight, bias):
                    each -= 0.1 * each.grad
                    each.grad = None
            prof.step(BATCH)
    return {"parameters": [[WIDTH, CLASSES], [CLASSES]], "buffer_bytes": 0}


class Tied(nn.Module):
    """A small language model whose output weights are its embedding's."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout, batch_first=True)
        self.output = nn.Linear(WIDTH, WORDS, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.output(self.encoder(self.embedding(tokens)))
        return scores


def language_model(profile: Profile, model: nn.Module) -> Json:
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    tokens = torch.randint(WORDS, (BATCH, LENGTH))
    train(profile, model, optimizer, lambda: functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()))
    return facts_of(model)


def tied_transformer(profile: Profile) -> Json:
    return language_model(profile, Tied())


def flash_attention(profile: Profile) -> Json:
    """Without dropout torch takes the fused attention, whose backward pass allocates on worker threads."""
    return language_model(profile, Tied(dropout=0.0))


class Checkpointed(nn.Module):
    """A convnet whose middle is not kept but run again."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Conv2d(3, 8, 3)
        self.inner = nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3), nn.ReLU())
        self.last = nn.Linear(8 * 10 * 10, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        hidden = checkpoint(self.inner, self.first(images), use_reentrant=self.reentrant)
        scores: Tensor = self.last(hidden.flatten(1))
        return scores


def checkpointed(profile: Profile, *, reentrant: bool) -> Json:
    model = Checkpointed(reentrant=reentrant)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = image_batch()
    train(profile, model, optimizer, lambda: functional.cross_entropy(model(images), labels))
    return facts_of(model)


def checkpointed_reentrant(profile: Profile) -> Json:
    return checkpointed(profile, reentrant=True)


def checkpointed_not_reentrant(profile: Profile) -> Json:
    return checkpointed(profile, reentrant=False)


def autocast(profile: Profile) -> Json:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    images, labels = image_batch()

    def loss_of() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return functional.cross_entropy(model(images), labels)

    train(profile, model, optimizer, loss_of)
    return facts_of(model)


def gan(profile: Profile) -> Json:
    generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 48))
    critic = nn.Sequential(nn.Linear(48, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    optimizers = [torch.optim.Adam(model.parameters(), 1e-4) for model in (generator, critic)]
    with profile([generator, critic], optimizers) as prof:
        while prof.active:
            noise, real = torch.randn(BATCH, 16), torch.rand(BATCH, 48)
            optimizers[1].zero_grad()
            (critic(generator(noise).detach()).mean() - critic(real).mean()).backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            (-critic(generator(noise)).mean()).backward()
            optimizers[0].step()
            prof.step(BATCH)
    return facts_of(generator, critic)


def lstm_found(profile: Profile) -> Json:
    lstm, head = nn.LSTM(16, 24, num_layers=2, batch_first=True), nn.Linear(24, 5)
    optimizer = torch.optim.RMSprop([*lstm.parameters(), *head.parameters()])
    lengths = itertools.cycle([7, 9, 5, 11, 6, 12, 4, 8, 10])
    with profile() as prof:
        while prof.active:
            words, labels = torch.rand(BATCH, next(lengths), 16), torch.randint(5, (BATCH,))
            optimizer.zero_grad()
            functional.cross_entropy(head(lstm(words)[0][:, -1]), labels).backward()
            optimizer.step()
            prof.step(BATCH)
    return facts_of(lstm, head)


def profiled_twice(profile: Profile) -> Json:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = image_batch()
    for _ in range(2):
        train(profile, model, optimizer, lambda: functional.cross_entropy(model(images), labels))
    return facts_of(model)


def odd_loop(profile: Profile) -> Json:
    """Evaluation in the middle, updates left out, and an end before the last window."""
    model = small_convnet()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with profile(model, optimizer) as prof:
        for iteration in range(8):
            images, labels = image_batch()
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            if iteration != 6:  # as loss scaling does when gradients overflow
                optimizer.step()
            if iteration == 5:
                model.eval()
                with torch.no_grad():
                    functional.cross_entropy(model(torch.randn(3 * BATCH, 3, SIDE, SIDE)), labels.repeat(3))
                model.train()
            prof.step(BATCH)
    return facts_of(model)


def raising_loop(profile: Profile) -> Json:
    model = small_convnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = image_batch()
    caught = ""

    def fail(step: int) -> None:
        if step == 7:
            model(images[:, :2])

    try:
        train(profile, model, optimizer, lambda: functional.cross_entropy(model(images), labels), after=fail)
    except RuntimeError as error:
        caught = str(error)
    return facts_of(model, caught=caught)


def resnet50(profile: Profile) -> Json:
    config = suite.configure(suite.find("resnet50"), batch_size=2, options={"image_size": 64})
    workload = suite.build("resnet50", "torch", config)
    with profile(workload.model, workload.optimizer) as prof:
        while prof.active:
            prof.step(workload.step())
    return facts_of(workload.model)
