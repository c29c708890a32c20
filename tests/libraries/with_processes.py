"""Two processes on gloo, as torchrun starts them: `ddp` copies the model, `fsdp2` shares it out."""

import os
import sys

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from word import ITEM, STEPS, dense, write_torch

BATCH, WIDE, HIDDEN, CLASSES = 8, 96, 48, 16  # an even share of every layer's rows for each of two processes

distributed.init_process_group("gloo")
rank = distributed.get_rank()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(WIDE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
whole = ITEM * sum(each.numel() for each in net.parameters())
if "ddp" in sys.argv:
    model, trained = DistributedDataParallel(net), net
    sent = whole  # each gradient is summed once
else:
    for layer in (net[0], net[2], net):
        fully_shard(layer)
    model = trained = net
    sent = 3 * whole  # gathered for forward and backward, and reduced
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
torch.manual_seed(rank)
for _ in range(STEPS):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(BATCH, WIDE)), torch.randint(CLASSES, (BATCH,)))
    loss.backward()
    optimizer.step()

flops = dense(BATCH, WIDE, HIDDEN, products=2) + dense(BATCH, HIDDEN, CLASSES)
write_torch(trained, optimizer, flops=flops, rank=int(os.environ["RANK"]), sent=sent, whole=whole // ITEM)
distributed.destroy_process_group()
