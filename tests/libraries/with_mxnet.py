"""MXNet: a module's own loop, `Module.fit`."""

import sys

import numpy as np

vars(np).setdefault("bool", bool)  # MXNet reads it
import mxnet as mx  # noqa: E402
from word import ITEM, STEPS, dense, write  # noqa: E402

BATCH, WIDE, HIDDEN, CLASSES = 8, 24, 40, 10

mx.random.seed(0)
np.random.seed(0)
samples = np.random.standard_normal((STEPS * BATCH, WIDE)).astype(np.float32)
labels = np.random.randint(0, CLASSES, STEPS * BATCH).astype(np.float32)
net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=HIDDEN, name="fc1")
net = mx.sym.Activation(net, act_type="relu", name="relu1")
net = mx.sym.FullyConnected(net, num_hidden=CLASSES, name="fc2")
module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
module.fit(
    mx.io.NDArrayIter(samples, labels, BATCH),
    num_epoch=1,
    optimizer="sgd",
    optimizer_params=(("learning_rate", 0.1), ("momentum", 0.9)),
    initializer=mx.init.Xavier(),
)

weights, _ = module.get_params()
numbers = {name: each.asnumpy() for name, each in weights.items()}
trained = sum(ITEM * each.size for each in numbers.values())
momentum = {f"momentum/{index}": each.asnumpy() for index, each in module._updater.states.items()}
flops = dense(BATCH, WIDE, HIDDEN, products=2) + dense(BATCH, HIDDEN, CLASSES)
state = sum(each.nbytes for each in momentum.values())
write(weights=trained, gradients=trained, state=state, flops=flops, numbers=numbers | momentum)
sys.exit(3)
