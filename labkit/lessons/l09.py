"""Lesson 09, MXNet: its checks, and everything that the lesson calls, under one name."""

from __future__ import annotations

from labkit import mx as mxnet
from labkit._mxnet_counts import (
    contexts,
    contexts_at_work,
    engine_calls,
    kvstore_calls,
    node_kinds,
    same_everywhere,
)
from labkit.exercises import exercise
from labkit.language import t
from labkit.lessons.mxnet_cells import load
from labkit.lessons.mxnet_table import agreeing, mapping
from labkit.lessons.mxnet_twins import (
    agree,
    batches,
    carry,
    flat,
    gluon_losses,
    gluon_net,
    late_losses,
    names,
    torch_losses,
    torch_net,
    training_pass,
)

NEEDS = ("mxnet",)
SMALLER_WITHOUT = ("gpu",)

__all__ = [
    "agree", "agreeing", "batches", "carry", "contexts", "contexts_at_work", "engine_calls", "flat", "gluon_losses",
    "gluon_net", "kvstore_calls", "late_losses", "load", "mapping", "names", "node_kinds", "same_everywhere",
    "torch_losses", "torch_net", "training_pass",
]  # fmt: skip

_RATE = 0.1


@exercise("09-1", points=6, limit_s=60)
def train_on_all_contexts(task):
    """``train_step(net, trainer, loss_fn, x, y, contexts)`` -> mean loss, after one step on all contexts."""
    mx = mxnet.load()
    places = [mx.cpu(k) for k in range(task.rng.choice([2, 3]))]
    even = _one_step(task, mx, places, len(places) * task.rng.randint(4, 9))
    task.expect(len(even.worked) == len(places), t(
        "Only {count} of {all} contexts did any work: split the batch with `gluon.utils.split_and_load(x, contexts)` "
        "and run the net once for each part.", count=len(even.worked), all=len(places)))
    with task.part(2, t("each context has its own part")):
        task.expect(sum(even.worked.values()) == even.size, t(
            "Together the contexts saw {seen} samples of a batch of {size}: each context gets its own part, and each "
            "part goes through the net once.", seen=sum(even.worked.values()), size=even.size))
    with task.part(2, t("equal to one big batch")):
        task.expect(even.same, t("The contexts' weights differ after your step: is `trainer.step` called, once?"))
        task.expect(even.moved > 0, t("The weights did not move: `backward` for every part, then `trainer.step`."))
        task.expect(abs(even.moved - 1) < 1e-3, t(
            "The step is {ratio} times as long as that of one process with the whole batch. `trainer.step` is given "
            "the size of the whole batch, not of a part.", ratio=f"{even.moved:.2f}"))
    with task.part(1, t("one `pushpull` a parameter")):
        task.expect(even.calls["pushpull"] == 4, t(
            "The net has four parameters, so one step needs four `pushpull`; counted: {count}. Call `trainer.step` "
            "once, after all parts.", count=even.calls["pushpull"]))
        task.expect(abs(even.loss - even.true_loss) < 1e-4, t("Return the mean loss over the whole batch."))
    with task.part(1, t("a last batch that does not divide")):
        odd = _one_step(task, mx, places, len(places) * task.rng.randint(4, 9) + 1)
        task.expect(sum(odd.worked.values()) == odd.size and abs(odd.moved - 1) < 1e-3 and
                    abs(odd.loss - odd.true_loss) < 1e-4, t(
            "With {size} samples on {all} contexts it is not right yet: `split_and_load(…, even_split=False)`, and the "
            "mean over all samples, not the mean of the parts' means.", size=odd.size, all=len(places)))


class _one_step:  # noqa: N801  (a record that is made by running the learner's step once)
    """One step of the learner's function beside one process with the whole batch: what was counted."""

    def __init__(self, task, mx, contexts, size):
        self.size = size
        net, alone = (self._net(mx, place) for place in (contexts, mx.cpu()))
        for own, other in zip(alone.collect_params().values(), net.collect_params().values(), strict=True):
            own.set_data(other.data(contexts[0]))
        random = task.rng.randrange(2**31)
        x, y = self._batch(mx, size, random)
        before = self._weights(net, contexts[0])
        loss_fn = mx.gluon.loss.SoftmaxCrossEntropyLoss()
        trainers = [mx.gluon.Trainer(n.collect_params(), "sgd", {"learning_rate": _RATE}) for n in (net, alone)]
        with mx.autograd.record():
            losses = loss_fn(alone(x), y)
        losses.backward()
        trainers[1].step(size)
        self.true_loss = losses.mean().asscalar()
        with kvstore_calls() as self.calls, contexts_at_work(net) as self.worked:
            self.loss = task.number(net, trainers[0], loss_fn, x.copy(), y.copy(), list(contexts))
        self.same = same_everywhere(net)
        wanted = self._weights(alone, mx.cpu()) - before
        got = self._weights(net, contexts[0]) - before
        self.moved = float((got * wanted).sum() / (wanted * wanted).sum())

    def _net(self, mx, contexts):
        net = mx.gluon.nn.Sequential()
        net.add(mx.gluon.nn.Dense(12, activation="relu", in_units=6), mx.gluon.nn.Dense(4, in_units=12))
        net.initialize(mx.init.Xavier(), ctx=contexts)
        return net

    def _batch(self, mx, size, seed):
        import numpy as np

        random = np.random.RandomState(seed)
        return mx.nd.array(random.randn(size, 6)), mx.nd.array(random.randint(0, 4, size))

    def _weights(self, net, context):
        import numpy as np

        return np.concatenate([p.data(context).asnumpy().ravel() for p in net.collect_params().values()])


@exercise("09-2", points=4, limit_s=60)
def calls_of_a_kvstore(task):
    """``calls(parameters, steps, contexts)`` -> [calls of broadcast, calls of pushpull], checked by really training."""
    mx = mxnet.load()
    several = [(2 * task.rng.randint(1, 4), task.rng.randint(2, 6), task.rng.choice([2, 3])) for _ in range(4)]
    alone = [(2 * task.rng.randint(1, 4), task.rng.randint(2, 6), 1)]
    got = [list(task.call(*case, returns=(list, tuple))) for case in [*several, *alone]]
    truth = [_counted(mx, *case) for case in [*several, *alone]]
    task.expect(all(len(pair) == 2 for pair in got), t(
        "Return two numbers: calls of `broadcast`, calls of `pushpull`."))
    if got[:4] != truth[:4]:
        task.expect([pair[::-1] for pair in got[:4]] != truth[:4], t("The other way round: `broadcast` comes first."))
        task.expect(any(g[1] != w[1] * c[2] for g, w, c in zip(got, truth, several, strict=False)), t(
            "One `pushpull` carries the gradients of all contexts at once: the number of contexts is no factor."))
    with task.part(3, t("several contexts")):
        task.expect([g[0] for g in got[:4]] == [w[0] for w in truth[:4]], t(
            "`broadcast` carries the initial weights: once a parameter, in the first step only."))
        task.expect(got[:4] == truth[:4], t("`pushpull`: once a parameter and step."))
    with task.part(1, t("one context")):
        task.expect(got[4] == truth[4], t("With one context the Trainer creates no kvstore: what can it call then?"))


def _counted(mx, parameters: int, steps: int, contexts: int) -> list[int]:
    """Train a small net for real and count."""
    places = [mx.cpu(k) for k in range(contexts)]
    net = mx.gluon.nn.Sequential()
    for _ in range(parameters // 2):
        net.add(mx.gluon.nn.Dense(3, in_units=3))
    net.initialize(ctx=places)
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
    with kvstore_calls() as seen:
        for _ in range(steps):
            with mx.autograd.record():
                outputs = [net(mx.nd.ones((2, 3), ctx=place)) for place in places]
            mx.autograd.backward(outputs)
            trainer.step(2 * contexts)
    return [seen["broadcast"], seen["pushpull"]]


@exercise("09-3", points=6, limit_s=60)
def port_to_torch(task):
    """``to_torch(net)``: a Gluon Sequential of Dense and BatchNorm as a torch module that computes the same."""
    import torch

    mx = mxnet.load()
    seed, widths = task.rng.randrange(2**31), [task.rng.randint(3, 9) for _ in range(4)]
    mx.random.seed(seed)
    plain, activated, normed = (_gluon(mx, widths, kind) for kind in ("plain", "relu", "norm"))
    x = mx.nd.random.normal(shape=(task.rng.randint(20, 40), widths[0]))
    first = task.call(plain, returns=torch.nn.Module)
    with task.part(2, t("dense layers")):
        _same_output(task, plain, first, x, t(
            "The outputs differ: is each weight and each bias carried over? Both keep a weight as (out, in)."))
    with task.part(2, t("their activations")):
        _same_output(task, activated, task.call(activated, returns=torch.nn.Module), x, t(
            "`Dense(activation=\"relu\")` computes ReLU itself; `nn.Linear` does not: put a `nn.ReLU()` behind it "
            "where `layer.act` is not None."))
    with task.part(2, t("batch-norm, in inference and in training")):
        ported = task.call(normed, returns=torch.nn.Module)
        ported.eval()
        _same_output(task, normed, ported, x, t(
            "In inference batch-norm differs: carry over `gamma`, `beta`, `running_mean` and `running_var`, and the "
            "epsilon."))
        ported.train()
        with mx.autograd.record():
            output = normed(x)
        output.backward()  # MXNet moves the running mean in the backward pass
        ported(torch.from_numpy(x.asnumpy()))
        own = normed[1].running_mean.data().asnumpy()
        means = [m.running_mean.numpy() for m in ported.modules() if isinstance(m, torch.nn.BatchNorm1d)]
        task.expect(means and _near(means[0], own), t(
            "After a training step the running mean differs. Gluon's `momentum` is what is kept, PyTorch's is what is "
            "new: 0.9 there is 0.1 here."))


def _gluon(mx, widths, kind: str):
    nn, net = mx.gluon.nn, mx.gluon.nn.HybridSequential()
    net.add(nn.Dense(widths[1], in_units=widths[0], activation="relu" if kind == "relu" else None))
    if kind == "norm":
        net.add(nn.BatchNorm(in_channels=widths[1], momentum=0.8, epsilon=1e-3))
    net.add(nn.Dense(widths[2], in_units=widths[1]))
    net.initialize(mx.init.Normal(0.5))
    for parameter in net.collect_params().values():  # no zeros and ones that a forgotten copy would hit by chance
        parameter.set_data(mx.nd.random.uniform(0.5, 1.5, shape=parameter.shape) * (1 - 2 * (parameter.data() < 0)))
    return net


def _same_output(task, net, ported, x, hint: str) -> None:
    import torch

    with torch.no_grad():
        got = ported(torch.from_numpy(x.asnumpy()))
    task.expect(_near(got.numpy(), net(x).asnumpy()), hint)


def _near(got, wanted) -> bool:
    import numpy as np

    return got.shape == wanted.shape and bool(np.allclose(got, wanted, rtol=1e-4, atol=1e-4))
