"""A loop as loops are: nothing handed over, batches of varying length, evaluation, skipped updates, an early end."""

import torch
from torch import nn

import tbdprof

lstm, head = nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 5)
optimizer = torch.optim.RMSprop([*lstm.parameters(), *head.parameters()])


def loss_of(length: int) -> torch.Tensor:
    """Return the loss of a batch of sequences of a length."""
    words, labels = torch.rand(8, length, 32), torch.randint(5, (8,))
    return nn.functional.cross_entropy(head(lstm(words)[0][:, -1]), labels)


with tbdprof.profile(warmup=5, steps=5, unit="sentences", output="odd_loop.tbd", force=True) as prof:
    for iteration in range(25):
        optimizer.zero_grad()
        loss = loss_of(length=10 + iteration % 7)
        loss.backward()
        if iteration % 10 != 9:  # as loss scaling does when gradients overflow
            optimizer.step()
        if iteration == 12:
            with torch.no_grad():
                loss_of(length=50)
        prof.step(8)
        if iteration == 17:
            break  # it has converged, say

print(prof)
