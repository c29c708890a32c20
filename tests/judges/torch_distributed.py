"""Training in two processes on gloo; this one is profiled, and the other, a fork of it, takes the same steps."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from judges.process import Json, Profile
from judges.torch_loops import facts_of
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

BATCH, WIDE, NARROW, STEPS = 4, 96, 8, 16


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDE, WIDE), nn.ReLU(), nn.Linear(WIDE, NARROW))


@contextmanager
def two_processes() -> Iterator[int]:
    """Fork, and connect the two; the fork ends where the enclosed block ends."""
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        rank = int(child == 0)
        os.environ.update(GLOO_SOCKET_IFNAME="lo")
        distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
        try:
            yield rank
        finally:
            distributed.destroy_process_group()
            if rank:
                os._exit(int(sys.exc_info()[0] is not None))
        _, status = os.waitpid(child, 0)
        assert status == 0


def train(profile: Profile, model: nn.Module, rank: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(BATCH, WIDE)).square().mean().backward()
        optimizer.step()

    if rank:
        for _ in range(STEPS):
            step()
        return
    with profile(model, optimizer) as profiler:
        for _ in range(STEPS):
            step()
            profiler.step(BATCH)


def copies_and_shares(profile: Profile) -> Json:
    """Train three models: DDP with gradients beside its buckets, with gradients in them, and FSDP2."""
    with two_processes() as rank:
        for view in (False, True):
            train(profile, DistributedDataParallel(net(), gradient_as_bucket_view=view), rank)
        model = net()
        for layer in (model[0], model[2], model):
            fully_shard(layer)
        train(profile, model, rank)
    return facts_of(net())
