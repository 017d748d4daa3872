"""Lesson 07: its checks know right from wrong, its helpers count and stream right, its commands are torchrun's own."""

import itertools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

import labkit as lab
from labkit import launch
from labkit.lessons import digits_net, l07, rank_turns, shards
from labkit.lessons.ddp_scaling import AFTER, DDP, ONE, SILENT, measure, of
from labkit.lessons.toy_ranks import MissingRankError, World

SOURCE = Path(__file__).resolve().parent.parent / "notebooks" / "src" / "07_data_parallel.md"
SENT = Path(__file__).parent / "ranks" / "sent.py"
pytestmark = pytest.mark.usefixtures("english")
SEEDS = range(6)


# --- the small task -----------------------------------------------------------------------------------------------


def test_network_and_batches_are_equal_in_every_process():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert l07.weights(l07.network()) == l07.weights(l07.network())
    assert torch.equal(torch.get_rng_state(), before)
    assert l07.gap(l07.weights(l07.network()), l07.weights(l07.network(seed=1))) > 0.1
    (x, y), (again, _) = next(l07.batches()), next(l07.batches())
    assert x.shape == (64, 64)
    assert y.shape == (64,)
    assert torch.equal(x, again)
    assert float(x.max()) <= 1.0


def test_training_learns_and_counts_its_steps():
    share, steps = l07.train(batch=256, rate=0.16, epochs=20)
    assert steps == 20 * -(-len(digits_net.digits()[1]) // 256)
    assert share > 0.9
    assert l07.train(batch=256, rate=0.16, epochs=1, warm_up=3)[0] < share
    with pytest.raises(ValueError, match="zip"):
        l07.gap([1.0], [1.0, 2.0])


# --- ranks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_toy_ranks_sum_and_count(ranks):
    world = World(ranks)

    def work(comm):
        one, two = torch.full((2, 3), float(comm.rank)), torch.ones(4, dtype=torch.double)
        comm.all_reduce(one)
        comm.all_reduce(two)
        return one.sum().item(), two.sum().item()

    assert world.run(work) == [(6 * sum(range(ranks)), 4.0 * ranks)] * ranks
    assert world.calls == [2] * ranks
    assert world.bytes == [6 * 4 + 4 * 8] * ranks


def test_toy_ranks_say_who_is_missing():
    with pytest.raises(MissingRankError, match="not every rank comes"):
        World(3).run(lambda comm: comm.rank == 1 or comm.all_reduce(torch.ones(1)))
    with pytest.raises(MissingRankError, match=r"different shapes: \(1,\), \(2,\)"):
        World(2).run(lambda comm: comm.all_reduce(torch.ones(comm.rank + 1)))


def test_toy_ranks_raise_the_fault_and_not_its_consequence():
    def work(comm):
        if comm.rank == 2:
            raise KeyError("mine")
        comm.all_reduce(torch.ones(1))

    with pytest.raises(KeyError, match="mine"):
        World(3).run(work)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the bytes at a socket")
def test_torchs_all_reduce_is_a_ring():
    ranks = 3
    for result in launch.torchrun(SENT, ranks, values={"what": ["all_reduce"]}, show=False):
        sent, share = result["all_reduce"]["sent"], 2 * (ranks - 1) / ranks * result["all_reduce"]["whole"]
        assert sum(sent) == pytest.approx(share, rel=0.01)
        assert sent[0] == pytest.approx(share, rel=0.01)  # to one neighbour alone


# --- taking turns -------------------------------------------------------------------------------------------------


@pytest.fixture
def alone_in_a_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_turns_on_a_fake_clock(alone_in_a_group, monkeypatch):
    now, calls = [0.0], []
    monkeypatch.setattr(rank_turns.time, "perf_counter", lambda: now[0])

    def job(name, seconds):
        def run():
            now[0] += seconds
            calls.append(name)

        return run

    found = rank_turns.take_turns({"slow": job("slow", 0.05), "quick": job("quick", 0.004)}, rounds=4, size=7)
    assert found["calls"] == {"slow": 1, "quick": 5}
    assert found["size"] == 7
    assert np.allclose(found["times"]["quick"], np.full((4, 2), 0.004))
    assert calls.count("quick") == 3 + 4 * 2 * 5
    compared = rank_turns.comparison([found], baseline="slow", work={"quick": 2})
    assert compared.ratio("quick").value == pytest.approx(25.0)
    assert compared.medians_s["quick"] == pytest.approx(0.002)
    with pytest.raises(ValueError, match="baseline"):
        rank_turns.comparison([found], baseline="none")


def reported(ranks=2, **step_s):
    """What rank 0 would report of steps that always take this long."""
    rounds = 9
    one = {
        "times": {name: [[s, s]] * rounds for name, s in step_s.items()}, "first_s": step_s,
        "calls": dict.fromkeys(step_s, 1), "orders": [list(step_s)] * rounds, "device": "cpu", "threads": 1,
        "gradient_bytes": 4_000_000,
    }  # fmt: skip
    return [one] * ranks


def test_efficiency_and_overlap_are_what_their_formulas_say():
    found = of(reported(**{ONE: 1.0, DDP: 1.25, SILENT: 1.0, AFTER: 1.5}))
    assert found.efficiency.value == pytest.approx(0.8)
    assert found.overlap == pytest.approx(0.5)
    assert found.step_s[AFTER] == pytest.approx(1.5)
    text = str(found.sentence())
    assert "2 ranks get 1.60 times as much" in text
    assert "efficiency 80%" in text
    assert "50%" in text
    three = of(reported(3, **{ONE: 1.0, DDP: 1.0}), names=(ONE, DDP))
    assert three.efficiency.value == pytest.approx(1.0)
    assert three.overlap is None
    assert of(reported(**{ONE: 1.0, DDP: 2.0}), names=(ONE, DDP), weak=False).speed.ratio(DDP).value == 0.5


def test_an_undecided_claim_launches_the_ranks_again(capsys):
    launched = []

    def again():
        launched.append(1)
        return reported(**{ONE: 1.0, DDP: 1.0})

    swinging = reported(**{ONE: 1.0, DDP: 1.0})
    swinging[0]["times"][ONE] = [[0.5, 0.5], [1.5, 1.5], [0.6, 1.4]] * 3
    found = of(swinging, names=(ONE, DDP), repeat=again)
    assert lab.claim(found.speed, DDP, "faster", at_least=1.9)
    assert launched == [1]
    assert "Holds" in capsys.readouterr().out


@pytest.mark.slow
def test_two_real_ranks_take_turns():
    found = measure(width=64, batch=32, layers=3, rounds=3)
    assert found.ranks == 2
    assert found.gradient_bytes == 3 * (64 * 64 + 64) * 4
    assert set(found.step_s) == {ONE, DDP, SILENT, AFTER}
    assert found.efficiency.value < 0.9  # a step of so little arithmetic never pays


# --- shards -------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    assert shards.write_shards(str(tmp_path / "shards"), 5) == 5 * shards.ROWS * shards.ROW_BYTES
    return str(tmp_path / "shards")


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_stream_gives_every_sample_once(folder, ranks):
    mine = [[i for rows in shards.stream(folder, rank, ranks) for i in shards.numbers(rows)] for rank in range(ranks)]
    assert sorted(itertools.chain(*mine)) == list(range(5 * shards.ROWS))
    for done in (0, 1, 48, shards.ROWS, shards.ROWS + 3):
        rest = [i for rows in shards.stream(folder, 0, ranks, done=done) for i in shards.numbers(rows)]
        assert rest == mine[0][done:]


def test_a_stream_opens_no_shard_too_many(folder, monkeypatch):
    opened, read = [], shards.read
    monkeypatch.setattr(shards, "read", lambda path, shard: opened.append(path.name) or read(path, shard))
    rows = next(shards.stream(folder, 1, 2, done=0))
    assert rows.shape == (48, shards.ROW_BYTES)
    assert opened == ["shard-0001.bin"]
    opened.clear()
    list(shards.stream(folder, 0, 2, done=shards.ROWS))
    assert opened == ["shard-0002.bin", "shard-0004.bin"]


def test_samples_are_what_the_network_reads(folder):
    x, y = shards.samples(next(shards.stream(folder, 0, 1)))
    assert x.shape == (48, digits_net.PIXELS)
    assert digits_net.network()(x).shape == (48, digits_net.CLASSES)
    assert 0 <= int(y.min()) <= int(y.max()) < digits_net.CLASSES


CAPPED = """
import sys
from labkit.lessons import shards
folder = sys.argv[1]
with shards.memory_cap(24) as capped:
    print(capped, shards.fits(folder), sum(len(rows) for rows in shards.stream(folder, 0, 1)))
print(shards.fits(folder))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces RLIMIT_DATA")
def test_the_memory_cap_is_enforced_and_lifted_again(tmp_path):
    folder = str(tmp_path / "shards")
    assert shards.write_shards(folder, 8) == 32 * 2**20
    done = subprocess.run([sys.executable, "-c", CAPPED, folder], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "512", "True"]


# --- the commands for other machines --------------------------------------------------------------------------------


def test_the_torchrun_commands_are_torchruns_own():
    from torch.distributed.run import get_args_parser

    text = SOURCE.read_text(encoding="utf-8")
    commands = re.findall(r"^(\w+=\S+ |srun )?torchrun (.*)$", text, re.M)
    assert len(commands) == 6  # three, in two languages
    for before, command in commands:
        options = get_args_parser().parse_args(shlex.split(command))
        assert options.nnodes == "2"
        assert f"--save {options.training_script} " in text  # a file that a cell of the lesson has saved
        restarts = int(options.max_restarts) > 0  # as in test_two_hosts.py
        assert (before == "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 ") is restarts


# --- exercises ----------------------------------------------------------------------------------------------------


def averaged(gradients, comm):
    bucket = torch.cat([g.reshape(-1) for g in gradients])
    comm.all_reduce(bucket)
    bucket /= comm.ranks
    parts = bucket.split([g.numel() for g in gradients])
    return [part.view_as(g) for part, g in zip(parts, gradients, strict=True)]


def one_by_one(gradients, comm, divide=lambda comm: comm.ranks, send=lambda comm: True):
    for g in gradients:
        if send(comm):
            comm.all_reduce(g)
        g /= divide(comm)
    return gradients


def my_samples(n, rank, ranks, epoch):
    return torch.randperm(n, generator=torch.Generator().manual_seed(epoch))[rank::ranks].tolist()


def permuted(n, seed):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()


def stream(files, rank, ranks, done):
    for shard in files[rank::ranks]:
        if done >= len(shard):
            done -= len(shard)
        else:
            yield from shard.load()[done:]
            done = 0


@pytest.mark.parametrize("seed", SEEDS)
def test_right_answers_earn_full_marks_whatever_the_inputs(seed):
    best = lab.check("07-1", averaged, seed=seed)
    assert (best.points, best.cost[0]) == (6, 1)
    assert lab.check("07-2", my_samples, seed=seed).points == 5
    assert lab.check("07-3", stream, seed=seed).points == 6


def test_stubs_earn_nothing():
    for exercise in ("07-1", "07-2", "07-3"):
        result = lab.check(exercise, lambda *arguments: None)
        assert (result.status, result.points) == ("todo", 0)


@pytest.mark.parametrize(("answer", "points", "said"), [
    (one_by_one, 4, "Put all gradients into one bucket"),
    (lambda g, comm: one_by_one(g, comm, divide=lambda comm: 1), 0, "That is the sum"),
    (lambda g, comm: one_by_one(g, comm, divide=lambda comm: comm.ranks**2), 0, "divided twice"),
    (lambda g, comm: one_by_one(g, comm, divide=lambda comm: 2), 0, "divided by 2"),
    (lambda g, comm: one_by_one(g, comm, send=lambda comm: False), 0, "Nothing was sent"),
    (lambda g, comm: one_by_one(g, comm, send=lambda comm: comm.rank == 0), 0, "not every rank comes"),
    (lambda g, comm: [x.reshape(-1) for x in averaged(g, comm)], 0, "must have the shape"),
    (lambda g, comm: averaged(g, comm)[:1], 0, "one averaged tensor for each"),
    (lambda g, comm: averaged(g[::-1], comm), 0, ""),
    (lambda g, comm: (comm.all_reduce(torch.ones(1000)), averaged(g, comm))[1], 4, "More bytes"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_07_1(answer, points, said, seed):
    result = lab.check("07-1", answer, seed=seed)
    assert said in result.hint
    assert result.points == points


@pytest.mark.parametrize(("answer", "points", "said"), [
    (lambda n, rank, ranks, epoch: permuted(n, epoch + rank)[rank::ranks], 0, "no place in the seed"),
    (lambda n, rank, ranks, epoch: permuted(n, epoch)[rank * (n // ranks):(rank + 1) * (n // ranks)], 0, "never seen"),
    (lambda n, rank, ranks, epoch: (permuted(n, epoch) + permuted(n, epoch))[:-(-n // ranks) * ranks][rank::ranks], 0,
     "come twice"),
    (lambda n, rank, ranks, epoch: torch.randperm(n)[rank::ranks].tolist(), 0, "for the same epoch"),
    (lambda n, rank, ranks, epoch: permuted(n, 0)[rank::ranks], 4, "same in every epoch"),
    (lambda n, rank, ranks, epoch: list(range(n))[rank::ranks], 4, "same in every epoch"),
    (lambda n, rank, ranks, epoch: permuted(n, epoch) if rank == 0 else [], 4, "two more than another"),
    (lambda n, rank, ranks, epoch: [(i + epoch) % n + 1 for i in range(n)][rank::ranks], 0, "from 0 to n - 1"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_07_2(answer, points, said, seed):
    result = lab.check("07-2", answer, seed=seed)
    assert said in result.hint
    assert result.points == points


def everything_first(files, rank, ranks, done):
    return [row for shard in files[rank::ranks] for row in shard.load()][done:]


def skips_by_loading(files, rank, ranks, done):
    for shard in files[rank::ranks]:
        rows = shard.load()
        yield from rows[done:]
        done = max(0, done - len(rows))


def from_the_beginning(files, rank, ranks, done):
    yield from stream(files, rank, ranks, 0)


def strided(files, rank, ranks, done):
    rows = [row for shard in files for row in shard.load()]
    yield from rows[rank::ranks][done:]


@pytest.mark.parametrize(("answer", "points", "said"), [
    (everything_first, 3, "opened again"),
    (skips_by_loading, 4, "opened again"),
    (from_the_beginning, 4, "must go on with"),
    (strided, 0, "wrong order or wrong rank"),
    (lambda files, rank, ranks, done: stream(files, 0, 1, done), 0, "more than once"),
    (lambda files, rank, ranks, done: stream(files[:-1], rank, ranks, done), 0, "samples come out"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_07_3(answer, points, said, seed):
    result = lab.check("07-3", answer, seed=seed)
    assert said in result.hint
    assert result.points == points


# --- the lab --------------------------------------------------------------------------------------------------------


def test_the_lab_shows_what_was_measured():
    from labkit._lab import LabResult

    explorer = lab.widgets.DataParallelLab()
    value = of(reported(**{ONE: 0.1, DDP: 0.125, SILENT: 0.11, AFTER: 0.15}))
    shown = LabResult(explorer, value, explorer.defaults())
    table = explorer.table(value)
    assert [row[1] for row in table.rows] == ["100 ms", "125 ms", "110 ms", "150 ms"]
    assert [bar.get_width() for bar in shown.figure.axes[0].patches] == pytest.approx([100, 125, 110, 150])
    assert "efficiency 80%" in str(shown)
    assert "4.00 MB of gradients" in str(shown)
    assert "12% of it is waiting" in str(shown)
    assert explorer.measured(value).value == pytest.approx(1.6)
    assert value.card()["step_s"][DDP] == pytest.approx(0.125)


@pytest.mark.slow
def test_the_lab_measures_real_ranks():
    explorer = lab.widgets.DataParallelLab(width=64, batch=16)
    value = explorer.run(guess=1.5, rounds=3)
    assert explorer.value is value
    assert value.gradient_bytes == 6 * (64 * 64 + 64) * 4
    assert "You guessed 1.50 times" in str(explorer)
    with pytest.raises(ValueError, match="`ranks` can be"):
        explorer.run(ranks=7)
