"""Lesson 09: its checks know right from wrong, its twins are twins, its counters count right, and without MXNet
PyTorch's half runs."""

import importlib.util
import math
import os
import platform
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import labkit as lab
from labkit import datasets, mx
from labkit._kernel_sockets import unix_sockets
from labkit.lessons import l09, mxnet_cells, mxnet_table

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "en" / "09_mxnet.ipynb"
needs_mxnet = pytest.mark.skipif(
    importlib.util.find_spec("mxnet") is None, reason="no MXNet package for this machine"
)
pytestmark = pytest.mark.usefixtures("english")
SEEDS = range(4)


@pytest.fixture
def gluon():
    return mx.load().gluon


# --- cells that step aside ----------------------------------------------------------------------------------------


def test_a_marked_cell_is_an_ordinary_one_where_mxnet_is(monkeypatch):
    monkeypatch.setattr(mx, "is_available", lambda: True)
    assert mxnet_cells.transform(["%%mxnet\n", "x = 1\n"]) == ["# %%mxnet\n", "x = 1\n"]
    for cell in (["x = 1\n"], [], ["%%mxnet_ps -w 2\n", "y\n"], ["%%torchrun\n", "y\n"]):
        assert mxnet_cells.transform(cell) == cell


def test_a_marked_cell_steps_aside_where_it_is_not(monkeypatch):
    monkeypatch.setattr(mx, "is_available", lambda: False)
    for first in ("%%mxnet\n", "%%mxnet_ps -w 2 -s 1\n"):
        [line] = mxnet_cells.transform([first, "raise SystemError\n"])
        assert "needs MXNet" in str(eval(line))
    assert mxnet_cells.transform(["%%torchrun\n", "y\n"]) == ["%%torchrun\n", "y\n"]


def test_load_without_mxnet_says_how_to_get_it(monkeypatch, capsys):
    def missing():
        raise mx.MXNetUnavailableError("type this")

    monkeypatch.setattr(mx, "load", missing)
    assert mxnet_cells.load() == (None,) * 4
    assert "type this" in capsys.readouterr().out


HIDE = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name.partition(".")[0] == "mxnet" else found(name, *more)
"""


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_the_pytorch_half_runs_without_mxnet():
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(HIDE))
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False)
    with unix_sockets(client):
        client.execute()
    shown = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            texts = [o.get("text", "") + str(o.get("data", {}).get("text/plain", "")) for o in cell.outputs]
            shown[cell.source.partition("\n")[0]] = "\n".join(texts)
            if cell.source.startswith("%%mxnet"):
                assert "needs MXNet" in "\n".join(texts), cell.source
    everything = "\n".join(shown.values())
    for line in ("MXNet is not installed here", "two ranks equal one process: True", "PyTorch learns: True"):
        assert line in everything


# --- the twins ----------------------------------------------------------------------------------------------------


def test_names_are_the_unions():
    data = l09.names()
    unions = datasets.places("union")
    assert data.letters.shape == (len(unions), 16)
    assert (len(data.divisions), len(data.districts)) == (8, 64)
    spelled = {"".join(data.alphabet[k - 1] for k in row if k) for row in data.letters}
    assert spelled == {place.bn[:16] for place in unions}
    assert data.counts().sum() == (data.letters > 0).sum()
    of = {place.district: place.division for place in unions}
    for division, district in zip(data.division, data.district, strict=True):
        assert of[data.districts[district]] == data.divisions[division]


def test_batches_go_round():
    first, again = list(l09.batches(72))[0], list(l09.batches(72))[71]
    assert len(l09.names().letters) == 4538  # 70 whole batches of 64, and one that goes on at the beginning
    assert (again[0][58:] != first[0][:6]).any()
    assert (list(l09.batches(71))[70][0][58:] == first[0][:6]).all()


def test_a_torch_twin_is_always_the_same_and_leaves_the_random_state():
    before = torch.get_rng_state()
    assert (l09.flat(l09.torch_net()) == l09.flat(l09.torch_net())).all()
    assert (torch.get_rng_state() == before).all()


@needs_mxnet
def test_twins_have_the_same_weights_outputs_and_gradients():
    gluon_net, torch_net = l09.gluon_net(mx.load().cpu()), l09.torch_net()
    assert (l09.flat(gluon_net) == l09.flat(torch_net)).all()
    letters, division = next(l09.batches(1))
    passes = [l09.training_pass(net, letters, division) for net in (gluon_net, torch_net)]
    assert l09.agree(passes[0](), passes[1]())
    assert not l09.agree(passes[0](), passes[1]() + 0.01)
    grads = [p.grad().asnumpy() for p in gluon_net.collect_params().values()]
    for own, other in zip(grads, torch_net.parameters(), strict=True):
        np.testing.assert_allclose(own, other.grad.numpy(), rtol=1e-4, atol=1e-5)


@needs_mxnet
@pytest.mark.parametrize(("optimizer", "options", "within"), [("sgd", {"lr": 0.5}, 1e-5), ("adam", {"lr": 1e-3}, 5e-5)])
def test_losses_agree_over_20_steps(optimizer, options, within):
    ours, theirs = l09.torch_losses(optimizer, 20, **options), l09.gluon_losses(optimizer, 20, **options)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=within)
    assert len(ours) == 20
    other = l09.gluon_losses(optimizer, 20, **{"lr": 1.5 * options["lr"]})
    assert np.abs(np.subtract(ours, other)).max() > 10 * within  # the bound tells another learning rate apart


def test_a_gradient_that_is_not_late_is_plain_sgd():
    data = l09.names()
    x, y = torch.from_numpy(data.counts()), torch.from_numpy(data.division)
    weight = torch.zeros(x.shape[1], 8, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.2)
    for step in range(30):
        optimizer.zero_grad()
        F.cross_entropy(x[step * 64 : step * 64 + 64] @ weight, y[step * 64 : step * 64 + 64]).backward()
        optimizer.step()
    wanted = F.cross_entropy(x @ weight, y).item()
    assert l09.late_losses(0.2, delay=0, batch=64, samples=30 * 64) == pytest.approx(wanted, abs=1e-5)
    assert l09.late_losses(0.2, delay=30, batch=64, samples=30 * 64) != pytest.approx(wanted, abs=1e-3)


def test_late_gradients_need_a_small_rate():
    blind = math.log(8)
    assert l09.late_losses(0.05, delay=16, batch=64, samples=8000) < blind
    assert l09.late_losses(0.8, delay=0, batch=64, samples=8000) < blind
    assert l09.late_losses(0.8, delay=16, batch=64, samples=8000) > blind


# --- counting -----------------------------------------------------------------------------------------------------


@needs_mxnet
def test_calls_are_counted_and_the_library_is_put_back():
    library = mx.load().base._LIB
    before = library.MXImperativeInvokeEx
    nd = mx.load().nd
    counted = l09.engine_calls(lambda: (nd.ones((2, 2)) + 1) * 3)
    assert (counted.operations, counted.graphs) == (3, 0)
    with pytest.raises(KeyError):
        l09.engine_calls(lambda: {}["x"])
    assert library.MXImperativeInvokeEx is before


@needs_mxnet
@pytest.mark.parametrize("kind", ["one", "two"])
def test_a_trainer_calls_its_kvstore(kind, gluon):
    places = l09.contexts()[: 1 if kind == "one" else 2]
    net = l09.gluon_net(places)
    with l09.kvstore_calls() as calls, l09.contexts_at_work(net) as worked:
        l09.gluon_losses("sgd", 3, contexts=places, net=net, lr=0.1)
    assert dict(calls) == ({} if kind == "one" else {"broadcast": 5, "pushpull": 15})
    assert sorted(worked.values()) == ([192] if kind == "one" else [96, 96])
    assert l09.same_everywhere(net)


TEAMS = """
import psutil
from labkit import mx
mx, teams = mx.load(), []
for place in (mx.cpu(0), mx.cpu(1)):
    mx.nd.ones((1,), ctx=place).wait_to_read()  # the context's own thread, still alone
    before = psutil.Process().num_threads()
    net = mx.gluon.nn.Dense(512, in_units=512)
    net.initialize(ctx=place)
    net(mx.nd.ones((256, 512), ctx=place)).wait_to_read()
    teams.append(1 + psutil.Process().num_threads() - before)
print(mx.base._LIB.omp_get_max_threads(), *teams)
"""


@needs_mxnet
@pytest.mark.slow
def test_a_context_takes_half_of_the_processors_unless_told_otherwise():
    def started(**told):
        rest = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        return subprocess.Popen([sys.executable, "-c", TEAMS], env={**rest, **told}, stdout=subprocess.PIPE, text=True)

    both = started(), started(OMP_NUM_THREADS="2")
    (most, *teams), told = ([int(number) for number in process.communicate()[0].split()] for process in both)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    share = max(1, processors // 2) if platform.machine() == "x86_64" else processors  # Arm: all, as its source says
    assert most == share
    assert len(teams) == 2
    assert max(teams) <= share
    assert told == [2, 2, 2]


@needs_mxnet
def test_weights_that_differ_are_seen(gluon):
    places = l09.contexts()
    net = l09.gluon_net(places)
    net[3].bias.list_data()[1][:] += 1
    assert not l09.same_everywhere(net)


@needs_mxnet
def test_nodes_of_a_symbol():
    sym = mx.load().sym
    x = sym.var("x")
    assert l09.node_kinds(sym.tanh(sym.tanh(x)) + 1) == {"tanh": 2, "_plus_scalar": 1}


# --- the table ----------------------------------------------------------------------------------------------------


@needs_mxnet
@pytest.mark.parametrize("row", l09.mapping(), ids=lambda row: row.mxnet)
def test_every_row_is_the_same_in_both(row):
    assert row.same()


@needs_mxnet
def test_rows_that_differ_are_named():
    wrong = [mxnet_table.Row("nd.sin", "torch.cos", "r = nd.sin(a)", "r = torch.cos(a)"),
             mxnet_table.Row("half", "half", "r = a", "r = a[:1]")]  # fmt: skip
    rows = mxnet_table.Mapping([l09.mapping()[0], *wrong])
    assert l09.agreeing(rows) == "1 of 3 rows give the same in both. Not these: nd.sin; half."


def test_the_table_has_thirty_names_and_shows_them():
    rows = l09.mapping()
    assert len({row.mxnet for row in rows}) >= 30
    assert rows._repr_html_().count("<tr>") == len(rows) + 1
    assert all(row.mxnet in str(rows) and row.torch in str(rows) for row in rows)


# --- the checks ---------------------------------------------------------------------------------------------------


def right_step(net, trainer, loss_fn, x, y, contexts):
    split, autograd = mx.load().gluon.utils.split_and_load, mx.load().autograd
    with autograd.record():
        losses = [loss_fn(net(a), b) for a, b in zip(split(x, contexts, even_split=False),
                                                     split(y, contexts, even_split=False), strict=True)]  # fmt: skip
    autograd.backward(losses)
    trainer.step(x.shape[0])
    return sum(float(part.sum().asscalar()) for part in losses) / x.shape[0]


def one_context(net, trainer, loss_fn, x, y, contexts):
    x, y = x.as_in_context(contexts[0]), y.as_in_context(contexts[0])
    with mx.load().autograd.record():
        loss = loss_fn(net(x), y)
    loss.backward()
    trainer.step(x.shape[0], ignore_stale_grad=True)
    return float(loss.mean().asscalar())


def everything_everywhere(net, trainer, loss_fn, x, y, contexts):
    with mx.load().autograd.record():
        losses = [loss_fn(net(x.as_in_context(c)), y.as_in_context(c)) for c in contexts]
    mx.load().autograd.backward(losses)
    trainer.step(x.shape[0])
    return float(losses[0].mean().asscalar())


def size_of_a_part(net, trainer, loss_fn, x, y, contexts):
    class Wrong:
        def step(self, size):
            trainer.step(size / len(contexts))

    return right_step(net, Wrong(), loss_fn, x, y, contexts)


def even_only(net, trainer, loss_fn, x, y, contexts):
    x.shape[0] // len(contexts) * len(contexts) == x.shape[0] or 1 / 0
    return right_step(net, trainer, loss_fn, x, y, contexts)


def total_loss(*given):
    return right_step(*given) * given[3].shape[0]


@needs_mxnet
@pytest.mark.parametrize("seed", SEEDS)
def test_step_on_all_contexts(seed):
    assert lab.check("09-1", right_step, seed=seed).points == 6


@needs_mxnet
@pytest.mark.parametrize(("wrong", "hint", "most"), [
    (one_context, "contexts did any work", 0), (everything_everywhere, "its own part", 2),
    (size_of_a_part, "times as long as", 3), (total_loss, "mean loss", 4), (lambda *given: 0.0, "contexts did any", 0),
])  # fmt: skip
def test_step_hints(wrong, hint, most):
    result = lab.check("09-1", wrong, seed=1)
    assert hint in result.hint
    assert result.points <= most


@needs_mxnet
def test_a_stub_earns_nothing():
    for exercise in ("09-1", "09-2", "09-3"):
        result = lab.check(exercise, lambda *given: None)
        assert (result.points, result.status) == (0, "todo")


@needs_mxnet
@pytest.mark.parametrize("seed", SEEDS)
def test_calls_of_a_kvstore(seed):
    assert lab.check("09-2", lambda p, s, c: (0, 0) if c == 1 else (p, p * s), seed=seed).points == 4


@needs_mxnet
@pytest.mark.parametrize(("wrong", "hint", "points"), [
    (lambda p, s, c: (p, p * s), "no kvstore", 3), (lambda p, s, c: (p, p * s * c), "no factor", 0),
    (lambda p, s, c: (p * s, p), "other way round", 0), (lambda p, s, c: (p * s, p * s), "first step only", 0),
    (lambda p, s, c: (p, p), "once a parameter and step", 0), (lambda p, s, c: [p], "two numbers", 0),
])  # fmt: skip
def test_calls_hints(wrong, hint, points):
    result = lab.check("09-2", wrong, seed=3)
    assert hint in result.hint
    assert result.points == points


def ported(net, *, activation=True, running=True, keeps=False, transposed=False):
    layers = []
    for layer in net:
        if hasattr(layer, "gamma"):
            new = torch.nn.BatchNorm1d(layer.gamma.shape[0], eps=layer._kwargs["eps"],
                                       momentum=layer._kwargs["momentum"] if keeps else
                                       1 - layer._kwargs["momentum"])  # fmt: skip
            pairs = [(new.weight, layer.gamma), (new.bias, layer.beta)]
            pairs += [(new.running_mean, layer.running_mean), (new.running_var, layer.running_var)] if running else []
        else:
            new = torch.nn.Linear(*reversed(layer.weight.shape))
            pairs = [(new.weight, layer.weight)] + ([] if transposed else [(new.bias, layer.bias)])
        for own, other in pairs:
            own.data.copy_(torch.from_numpy(other.data().asnumpy()))
        layers.append(new)
        if activation and getattr(layer, "act", None) is not None:
            layers.append(torch.nn.ReLU())
    return torch.nn.Sequential(*layers)


@needs_mxnet
@pytest.mark.parametrize("seed", SEEDS)
def test_port_to_torch(seed):
    assert lab.check("09-3", ported, seed=seed).points == 6


@needs_mxnet
@pytest.mark.parametrize(("slip", "hint", "points"), [
    ({"activation": False}, "computes ReLU itself", 4), ({"running": False}, "running_mean", 4),
    ({"keeps": True}, "what is kept", 4), ({"transposed": True}, "carried over", 0),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_port_hints(slip, hint, points, seed):
    result = lab.check("09-3", lambda net: ported(net, **slip), seed=seed)
    assert hint in result.hint
    assert result.points == points


# --- MXNetLab -----------------------------------------------------------------------------------------------------


@needs_mxnet
def test_the_lab_counts_compares_and_draws_what_it_returned():
    one = lab.widgets.MXNetLab()
    value = one.run(pairs=5, side=4, budget_s=0.3)
    assert (value.calls["eager"].operations, value.calls["static"].graphs) == (10, 1)
    assert value.comparison.names == ["eager", "hybrid", "static"]
    assert one.value is value
    assert [row[-1] for row in one.table(value).rows] == ["10", "1", "1"]
    axes = one.figure(value, None).axes[0]
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == [value.comparison.ratio(name).value for name in ("hybrid", "static")]
    assert one.result.card()["result"]["engine_calls"]["eager"] == [10, 0]
    assert "10 times" in one.why(value)


def test_the_lab_says_so_where_there_is_no_mxnet(monkeypatch):
    def missing():
        raise mx.MXNetUnavailableError("type this")

    monkeypatch.setattr(mx, "load", missing)
    with pytest.raises(mx.MXNetUnavailableError, match="type this"):
        lab.widgets.MXNetLab().run()
