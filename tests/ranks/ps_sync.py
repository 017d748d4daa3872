"""Two workers train one net on their halves of every batch; see tests/test_mxnet_launch.py."""

import os
from pathlib import Path

import numpy as np

import labkit as lab
from tests.sockets import addresses

mx = lab.mx.load()
autograd, gluon = mx.autograd, mx.gluon
STEPS, BATCH = 20, 16


@mx.init.register
class Halves(mx.init.Initializer):
    """MXNet keeps it, and with it all names of this script: the worker must say goodbye all the same."""

    def _init_weight(self, name, array):
        array[:] = np.float32(0.5)


def built():
    """A net that starts from the same weights everywhere."""
    net = gluon.nn.Sequential()
    net.add(gluon.nn.Dense(8, activation="tanh", in_units=4), gluon.nn.Dense(1, in_units=8))
    net.initialize(Halves())
    numbers = np.random.RandomState(1)
    for parameter in net.collect_params().values():
        parameter.set_data(mx.nd.array(numbers.uniform(-0.5, 0.5, parameter.shape)))
    return net


def trained(kv, part, parts):
    """Weights after 20 steps on every ``parts``-th sample from ``part`` on, and the trainer."""
    net, numbers = built(), np.random.RandomState(7)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.02, "momentum": 0.9}, kvstore=kv)
    for step in range(STEPS):
        x = numbers.rand(BATCH, 4)
        y = np.sin(x.sum(axis=1, keepdims=True))
        x, y = mx.nd.array(x[part::parts]), mx.nd.array(y[part::parts])
        with autograd.record():
            loss = ((net(x) - y) ** 2).sum()
        loss.backward()
        trainer.step(BATCH)
        if step % 10 == 0:
            print("step", step, flush=True)
    return [parameter.data().asnumpy() for parameter in net.collect_params().values()], trainer


if __name__ == "__main__":
    kv = mx.kv.create(lab.launch.value("kind", "dist_sync"))
    weights, trainer = trained(kv, kv.rank, kv.num_workers)
    pids = {path.stem: int(path.read_text()) for path in Path(os.environ["LABKIT_RUN_FOLDER"]).glob("*.pid")}
    lab.report(
        rank=kv.rank,
        weights=weights,
        on_server=trainer._update_on_kvstore,
        every={name: sorted(addresses(pid)) for name, pid in pids.items()},
        listening={name: sorted(addresses(pid, listening=True)) for name, pid in pids.items()},
    )
