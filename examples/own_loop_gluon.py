"""Profile your own Gluon loop; `prepare`, before MXNet is imported, shows tbdprof the first allocation too."""

import tbdprof

tbdprof.prepare("mxnet")

import mxnet as mx  # noqa: E402
from mxnet import autograd, gluon  # noqa: E402

net = gluon.nn.HybridSequential()
net.add(gluon.nn.Conv2D(32, 3, padding=1, activation="relu"), gluon.nn.Flatten(), gluon.nn.Dense(10))
net.initialize()
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "adam")
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

with tbdprof.profile(net, trainer, warmup=5, steps=10) as prof:
    for _ in range(40):
        images, labels = mx.nd.random.uniform(shape=(16, 3, 32, 32)), mx.nd.arange(16) % 10
        with autograd.record():
            loss = loss_of(net(images), labels)
        loss.backward()
        trainer.step(len(images))
        prof.step(len(images))

print(prof)
