"""The table that maps MXNet's names to PyTorch's: every row is a small program in both, run and compared."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from html import escape

import numpy as np

from labkit import mx as mxnet
from labkit.language import t

# MXNet's name, PyTorch's name, and the same little program in each; both leave what is compared in ``r``.
# a, b: (3, 4) floats; q: (4, 4); image: (2, 3, 8, 8); ids: (2, 5) whole numbers under 9; label: (3,); k: (4, 3, 3, 3).
_ROWS = [
    ("nd.array", "torch.tensor", "r = nd.array([[1, 2], [3, 4]])", "r = torch.tensor([[1.0, 2], [3, 4]])"),
    ("nd.zeros, nd.ones", "torch.zeros, torch.ones", "r = nd.zeros((2, 3)) + nd.ones((2, 3))",
     "r = torch.zeros(2, 3) + torch.ones(2, 3)"),
    ("nd.arange", "torch.arange", "r = nd.arange(2, 9, 3)", "r = torch.arange(2.0, 9, 3)"),
    (".asnumpy()", ".numpy()", "r = a.asnumpy() + 1", "r = a.numpy() + 1"),
    (".asscalar()", ".item()", "r = a.sum().asscalar()", "r = a.sum().item()"),
    (".as_in_context(ctx)", ".to(device)", "r = a.as_in_context(mx.cpu(1))", "r = a.to('cpu')"),
    (".astype", ".to(dtype)", "r = a.astype('float64')", "r = a.to(torch.float64)"),
    (".reshape((0, -1))", ".flatten(1)", "r = image.reshape((0, -1))", "r = image.flatten(1)"),
    (".expand_dims", ".unsqueeze", "r = a.expand_dims(axis=1)", "r = a.unsqueeze(1)"),
    ("nd.dot", "torch.matmul, @", "r = nd.dot(a, q)", "r = a @ q"),
    ("nd.batch_dot", "torch.bmm", "r = nd.batch_dot(image[0], image[0])", "r = torch.bmm(image[0], image[0])"),
    ("nd.concat(dim=1)", "torch.cat(dim=1)", "r = nd.concat(a, b, dim=1)", "r = torch.cat([a, b], dim=1)"),
    ("nd.stack", "torch.stack", "r = nd.stack(a, b, axis=1)", "r = torch.stack([a, b], dim=1)"),
    ("nd.where", "torch.where", "r = nd.where(a > 0, a, b)", "r = torch.where(a > 0, a, b)"),
    ("nd.pick", "Tensor.gather", "r = nd.pick(a, label)", "r = a.gather(1, label[:, None])[:, 0]"),
    ("nd.topk(ret_typ='value')", "torch.topk", "r = nd.topk(a, k=2, ret_typ='value')", "r = torch.topk(a, 2).values"),
    ("nd.clip", "torch.clamp", "r = nd.clip(a, -0.5, 0.5)", "r = a.clamp(-0.5, 0.5)"),
    ("nd.log_softmax", "F.log_softmax(dim=-1)", "r = nd.log_softmax(a)", "r = F.log_softmax(a, dim=-1)"),
    ("autograd.record, backward, .grad", "requires_grad, backward, .grad",
     "a.attach_grad()\nwith autograd.record():\n    y = (a * a * b).sum()\ny.backward()\nr = a.grad",
     "a.requires_grad_()\n(a * a * b).sum().backward()\nr = a.grad"),
    ("autograd.pause", "torch.no_grad",
     "a.attach_grad()\nwith autograd.record():\n    with autograd.pause():\n        c = a * 2\n    y = (a * c).sum()\n"
     "y.backward()\nr = a.grad",
     "a.requires_grad_()\nwith torch.no_grad():\n    c = a * 2\n(a * c).sum().backward()\nr = a.grad"),
    ("nd.BlockGrad, .detach()", ".detach()",
     "a.attach_grad()\nwith autograd.record():\n    y = (a * nd.BlockGrad(a)).sum()\ny.backward()\nr = a.grad",
     "a.requires_grad_()\n(a * a.detach()).sum().backward()\nr = a.grad"),
    ("nn.Dense(in_units=4)", "nn.Linear",
     "net = nn.Dense(4, in_units=4)\nnet.initialize()\nnet.weight.set_data(q)\nr = net(a)",
     "net = tnn.Linear(4, 4)\nnet.weight.data, net.bias.data = q, torch.zeros(4)\nr = net(a)"),
    ("nn.Dense(activation='relu')", "nn.Linear, nn.ReLU",
     "net = nn.Dense(4, activation='relu', in_units=4)\nnet.initialize()\nnet.weight.set_data(q)\nr = net(a)",
     "net = tnn.Sequential(tnn.Linear(4, 4), tnn.ReLU())\nnet[0].weight.data, net[0].bias.data = q, torch.zeros(4)\n"
     "r = net(a)"),
    ("nn.Embedding", "nn.Embedding",
     "net = nn.Embedding(4, 4)\nnet.initialize()\nnet.weight.set_data(q)\nr = net(ids % 4)",
     "r = tnn.Embedding(4, 4, _weight=q)(ids % 4)"),
    ("nn.Conv2D", "nn.Conv2d",
     "net = nn.Conv2D(4, 3, padding=1, in_channels=3)\nnet.initialize()\nnet.weight.set_data(k)\nr = net(image)",
     "net = tnn.Conv2d(3, 4, 3, padding=1, bias=False)\nnet.weight.data = k\nr = net(image)"),
    ("nn.MaxPool2D", "nn.MaxPool2d", "r = nn.MaxPool2D(2)(image)", "r = tnn.MaxPool2d(2)(image)"),
    ("nn.GlobalAvgPool2D", "nn.AdaptiveAvgPool2d(1)", "r = nn.GlobalAvgPool2D()(image)",
     "r = tnn.AdaptiveAvgPool2d(1)(image)"),
    ("nn.BatchNorm(momentum=0.9)", "nn.BatchNorm2d(momentum=0.1)",
     "net = nn.BatchNorm(in_channels=3, momentum=0.9)\nnet.initialize()\nwith autograd.record():\n    y = net(image)\n"
     "y.backward()\nr = net.running_mean.data()",
     "net = tnn.BatchNorm2d(3, momentum=0.1)\nnet(image)\nr = net.running_mean"),
    ("nn.LayerNorm", "nn.LayerNorm", "net = nn.LayerNorm(in_channels=4)\nnet.initialize()\nr = net(a)",
     "r = tnn.LayerNorm(4)(a)"),
    ("nn.Dropout, autograd.train_mode", "nn.Dropout, net.train()",
     "with autograd.train_mode():\n    r = nn.Dropout(0.5)(nd.ones((99,))).max()",
     "r = tnn.Dropout(0.5).train()(torch.ones(99)).max()"),
    ("nn.HybridSequential, hybridize()", "nn.Sequential, torch.jit.trace",
     "net = nn.HybridSequential()\nnet.add(nn.Activation('tanh'), nn.Flatten())\nnet.hybridize()\nr = net(image)",
     "r = torch.jit.trace(tnn.Sequential(tnn.Tanh(), tnn.Flatten()), image)(image)"),
    ("collect_params()", "named_parameters()",
     "net = nn.Dense(5, in_units=4)\nr = [n for p in net.collect_params().values() for n in p.shape]",
     "r = [n for _, p in tnn.Linear(4, 5).named_parameters() for n in p.shape]"),
    ("grad_req = 'null'", "requires_grad_(False)",
     "net = nn.Dense(5, in_units=4)\nnet.weight.grad_req = 'null'\nr = [p.grad_req != 'null' for p in "
     "net.collect_params().values()]",
     "net = tnn.Linear(4, 5)\nnet.weight.requires_grad_(False)\nr = [p.requires_grad for p in net.parameters()]"),
    ("SoftmaxCrossEntropyLoss (one loss a sample)", "F.cross_entropy(reduction='none')",
     "r = gluon.loss.SoftmaxCrossEntropyLoss()(a, label)", "r = F.cross_entropy(a, label, reduction='none')"),
    ("L2Loss (half the square)", "F.mse_loss / 2", "r = gluon.loss.L2Loss()(a, b).mean()",
     "r = F.mse_loss(a, b) / 2"),
    ("Trainer('sgd', momentum), step(batch)", "optim.SGD(momentum), step()",
     "net = nn.Dense(1, in_units=4, use_bias=False)\nnet.initialize()\nnet.weight.set_data(q[:1])\n"
     "tr = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.1, 'momentum': 0.9})\n"
     "for _ in range(3):\n    with autograd.record():\n        y = net(a) ** 2\n    y.backward()\n    tr.step(3)\n"
     "r = net.weight.data()",
     "w = q[:1].clone().requires_grad_()\nopt = torch.optim.SGD([w], lr=0.1, momentum=0.9)\n"
     "for _ in range(3):\n    opt.zero_grad()\n    ((a @ w.T) ** 2).sum(1).mean().backward()\n    opt.step()\n"
     "r = w.detach()"),
    ("split_and_load", "Tensor.chunk, .to(device)",
     "r = nd.concat(*[p.as_in_context(mx.cpu()) * 2 for p in gluon.utils.split_and_load(q, [mx.cpu(0), mx.cpu(1)])], "
     "dim=0)",
     "r = torch.cat([p.to('cpu') * 2 for p in q.chunk(2)])"),
    ("clip_global_norm", "clip_grad_norm_",
     "c = [a.copy()]\ngluon.utils.clip_global_norm(c, 0.5)\nr = c[0]",
     "w = torch.zeros(3, 4, requires_grad=True)\nw.grad = a.clone()\n"
     "tnn.utils.clip_grad_norm_([w], 0.5)\nr = w.grad"),
    ("lr_scheduler.FactorScheduler", "lr_scheduler.StepLR",
     "s = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=1.0)\nr = [s(n) for n in (1, 3, 5)]",
     "o = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)\n"
     "s = torch.optim.lr_scheduler.StepLR(o, 2, 0.5)\nr = []\n"
     "for n in range(6):\n    r += [o.param_groups[0]['lr']] if n % 2 else []\n    o.step()\n    s.step()\nr = r[:3]"),
    ("gluon.data.DataLoader, ArrayDataset", "DataLoader, TensorDataset",
     "d = gluon.data.ArrayDataset(a, label)\nr = [x.shape[0] for x, _ in gluon.data.DataLoader(d, batch_size=2)]",
     "from torch.utils.data import DataLoader, TensorDataset\n"
     "r = [len(x) for x, _ in DataLoader(TensorDataset(a, label), batch_size=2)]"),
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One pair of names with a program each; ``same()`` runs both."""

    mxnet: str
    torch: str
    mxnet_code: str
    torch_code: str

    def same(self) -> bool:
        """Whether both programs give the same values, in the same shape."""
        ours, theirs = _run(self.mxnet_code, _mxnet_names()), _run(self.torch_code, _torch_names())
        return ours.shape == theirs.shape and bool(np.allclose(ours, theirs, rtol=1e-5, atol=1e-6))


class Mapping(list):
    """All rows; shows itself as a table."""

    def __str__(self):
        return "\n".join(f"{row.mxnet:45} {row.torch}" for row in self)

    __repr__ = __str__

    def _repr_html_(self):
        head = "".join(f'<th scope="col" style="text-align:left">{name}</th>' for name in ("MXNet", "PyTorch"))
        cell = '<td style="text-align:left"><code>{}</code></td>'
        rows = (f"<tr>{cell.format(escape(r.mxnet))}{cell.format(escape(r.torch))}</tr>" for r in self)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def mapping() -> Mapping:
    return Mapping(Row(*row) for row in _ROWS)


def agreeing(rows: Mapping) -> str:
    """How many rows give the same in both, after running every one."""
    wrong = [row.mxnet for row in rows if not row.same()]
    said = t("{same} of {all} rows give the same in both.", same=len(rows) - len(wrong), all=len(rows))
    return said + (" " + t("Not these: {names}.", names="; ".join(wrong)) if wrong else "")


def _run(code: str, names: dict) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and it is in the table all the same
        exec(code, names)
    result = names["r"]
    for method in ("detach", "asnumpy", "numpy"):
        result = getattr(result, method, lambda result=result: result)()
    return np.atleast_1d(np.asarray(result))  # MXNet has no arrays without a dimension


def _arrays() -> dict:
    random = np.random.RandomState(9)
    shapes = {"a": (3, 4), "b": (3, 4), "q": (4, 4), "image": (2, 3, 8, 8), "k": (4, 3, 3, 3)}
    return {name: random.randn(*shape).astype(np.float32) for name, shape in shapes.items()}


def _mxnet_names() -> dict:
    mx = mxnet.load()
    names = {name: mx.nd.array(value) for name, value in _arrays().items()}
    names |= {"ids": mx.nd.array([[1, 2, 3, 4, 8], [0, 5, 6, 7, 1]]), "label": mx.nd.array([0, 3, 1])}
    return names | {"mx": mx, "nd": mx.nd, "gluon": mx.gluon, "nn": mx.gluon.nn, "autograd": mx.autograd}


def _torch_names() -> dict:
    import torch
    import torch.nn.functional as F

    names = {name: torch.from_numpy(value) for name, value in _arrays().items()}
    names |= {"ids": torch.tensor([[1, 2, 3, 4, 8], [0, 5, 6, 7, 1]]), "label": torch.tensor([0, 3, 1])}
    return names | {"torch": torch, "tnn": torch.nn, "F": F}
