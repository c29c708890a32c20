"""Training loops in MXNet whose steps are taken by several threads; the main thread reports each update."""

import queue
import threading
from dataclasses import replace
from typing import Any

import mxnet as mx
from judges.mxnet_loops import CLASSES, facts_of
from judges.process import Json, Profile
from mxnet import autograd, gluon

BATCH, WIDTH, STEPS = 6, 40, 24


def network(hidden: int) -> gluon.nn.Sequential:
    net = gluon.nn.Sequential()
    net.add(gluon.nn.Dense(hidden, "relu", in_units=WIDTH), gluon.nn.Dense(CLASSES, in_units=hidden))
    net.initialize()
    return net


def two_free(profile: Profile) -> Json:
    """Two threads train networks of their own and do not wait for each other."""
    nets = [network(32), network(48)]
    trainers = [gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9}) for net in nets]
    updates: queue.Queue[None] = queue.Queue(1)
    closed = threading.Event()

    def run(net: gluon.Block, trainer: gluon.Trainer) -> None:
        loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
        while not closed.is_set():
            images, labels = mx.nd.ones((BATCH, WIDTH)), mx.nd.zeros((BATCH,))
            with autograd.record():
                loss = loss_of(net(images), labels)
            loss.backward()
            trainer.step(BATCH)
            loss.wait_to_read()
            updates.put(None)

    threads = [threading.Thread(target=run, args=each) for each in zip(nets, trainers, strict=True)]
    for thread in threads:
        thread.start()
    try:
        with lengthened(profile(nets, trainers)) as prof:
            while prof.active:
                updates.get(timeout=30)
                prof.step(BATCH)
    finally:
        closed.set()
        while any(thread.is_alive() for thread in threads):
            try:
                updates.get(timeout=0.01)
            except queue.Empty:
                continue
    return facts_of(*nets)


def lengthened(profiler: Any) -> Any:
    """Return a profiler whose windows of memory and kernels last for several updates by each thread."""
    joining = profiler._joining

    def longer(*arguments: object) -> tuple[object, object]:
        plan, instruments = joining(*arguments)
        return replace(plan, memory_steps=STEPS, kernel_steps=STEPS), instruments

    profiler._joining = longer
    return profiler
