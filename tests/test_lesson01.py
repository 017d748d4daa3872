"""Lesson 01: its checks know right from wrong, each common mistake has its hint, its toy machine keeps its word."""

import statistics
import time

import pytest

import labkit as lab
from labkit.lessons import l01

pytestmark = pytest.mark.usefixtures("english")
SEEDS = range(12)


def timed(fn, wait, clock):
    wait()
    start = clock()
    fn()
    wait()
    return clock() - start


def aa_wrong_share(judge, trials):
    return sum(judge() in ("faster", "slower") for _ in range(trials)) / trials


def abba_ratio(run_a, run_b, clock, rounds):
    def once(run):
        start = clock()
        run()
        return clock() - start

    ratios = []
    for _ in range(rounds):
        times = [once(run) for run in (run_a, run_b, run_b, run_a)]
        ratios.append((times[0] + times[3]) / (times[1] + times[2]))
    return statistics.median(ratios)


@pytest.mark.parametrize("seed", SEEDS)
def test_right_answers_earn_full_marks_whatever_the_inputs(seed):
    assert lab.check("01-1", timed, seed=seed).points == 4
    assert lab.check("01-2", aa_wrong_share, seed=seed).points == 5
    assert lab.check("01-3", abba_ratio, seed=seed).points == 8


def test_stubs_earn_nothing():
    for exercise in ("01-1", "01-2", "01-3"):
        result = lab.check(exercise, lambda *arguments: None)
        assert (result.status, result.points) == ("todo", 0)


def no_last_wait(fn, wait, clock):
    wait()
    start = clock()
    fn()
    return clock() - start


def no_first_wait(fn, wait, clock):
    start = clock()
    fn()
    wait()
    return clock() - start


def first_wait_inside(fn, wait, clock):
    start = clock()
    wait()
    fn()
    wait()
    return clock() - start


def other_clock(fn, wait, clock):
    start = time.time()
    fn()
    wait()
    return time.time() - start


def twice(fn, wait, clock):
    fn()
    return timed(fn, wait, clock)


def backwards(fn, wait, clock):
    return -timed(fn, wait, clock)


@pytest.mark.parametrize(("answer", "points", "said"), [
    (no_last_wait, 0, "handing-in only"),
    (no_first_wait, 2, "still busy with an earlier job"),
    (first_wait_inside, 2, "still busy with an earlier job"),
    (other_clock, 0, "another clock"),
    (twice, 2, "exactly once"),
    (backwards, 0, "negative"),
    (lambda fn, wait, clock: 1000 * timed(fn, wait, clock), 0, "in seconds"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_01_1(answer, points, said, seed):
    result = lab.check("01-1", answer, seed=seed)
    assert said in result.hint
    assert result.points == points


def share(*winners, scale=1.0):
    return lambda judge, trials: scale * sum(judge() in winners for _ in range(trials)) / trials


def remembered(judge, trials):
    verdict = judge()
    return sum(verdict in ("faster", "slower") for _ in range(trials)) / trials


@pytest.mark.parametrize(("answer", "said"), [
    (share("faster"), "`slower` is a wrong winner as well"),
    (share("faster", "slower", "undecided"), "`undecided` names no winner"),
    (share("faster", "slower", scale=100), "per cent"),
    (lambda judge, trials: sum(judge() in ("faster", "slower") for _ in range(trials)), "divide by `trials`"),
    (lambda judge, trials: [judge() for _ in range(trials)] and 0.123, "says `faster` or `slower`"),
    (remembered, "once in every trial"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_01_2(answer, said, seed):
    result = lab.check("01-2", answer, seed=seed)
    assert said in result.hint
    assert result.points <= 1


def in_order(pattern, combine):
    """A harness that runs ``pattern`` each round, or as a whole when it holds the rounds itself."""

    def answer(run_a, run_b, clock, rounds):
        times = {"A": [], "B": []}
        for letter in pattern(rounds):
            start = clock()
            (run_a if letter == "A" else run_b)()
            times[letter].append(clock() - start)
        return combine(times["A"], times["B"])

    return answer


def of_sums(a, b):
    return sum(a) / sum(b)


def of_medians(a, b):
    return statistics.median(a) / statistics.median(b)


@pytest.mark.parametrize(("answer", "points", "said"), [
    (lambda *arguments: 1 / abba_ratio(*arguments), 4, "Upside down"),
    (in_order(lambda rounds: "AA" * rounds + "BB" * rounds, of_medians), 4, "all of the other"),
    (in_order(lambda rounds: "BB" * rounds + "AA" * rounds, of_medians), 4, "all of the other"),
    (in_order(lambda rounds: "ABAB" * rounds, of_medians), 4, "always runs a little later"),
    (in_order(lambda rounds: "AABB" * rounds, of_medians), 4, "only the machine slows down"),
    (in_order(lambda rounds: "ABBA" * rounds, of_sums), 6, "One single run"),
    (in_order(lambda rounds: "ABBABB" * rounds, of_medians), 4, "Each round has four runs"),
    (lambda run_a, run_b, clock, rounds: 1.0, 0, "nothing disturbs"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_01_3(answer, points, said, seed):
    result = lab.check("01-3", answer, seed=seed)
    assert said in result.hint
    assert result.points == points


def test_toy_machine_keeps_its_word():
    toy = l01.ToyMachine(1)
    job = toy.job(0.002, first_s=0.5)
    job()
    assert toy.clock() == 502_000_000
    job()
    assert toy.clock() == 504_000_000
    drifting = l01.ToyMachine(1, drift=lambda now_s: 2.0)
    drifting.job(0.001)()
    assert drifting.clock() == 2_000_000


def test_toy_machine_repeats_its_story_and_has_the_noise_it_claims():
    def story(seed, runs=4000):
        toy, times = l01.ToyMachine(seed, noise=0.1, hiccups=0.02), []
        job = toy.job(0.001)
        for _ in range(runs):
            start = toy.clock()
            job()
            times.append((toy.clock() - start) / 1e6)
        return times

    times = story(3)
    assert times == story(3)
    assert times != story(4)
    hiccups = [time_ms for time_ms in times if time_ms > 15]
    assert 0.014 < len(hiccups) / len(times) < 0.026
    calm = [time_ms for time_ms in times if time_ms < 15]
    assert statistics.median(calm) == pytest.approx(1.0, rel=0.01)
    q1, _, q3 = statistics.quantiles(calm, n=4)
    assert q3 - q1 == pytest.approx(2 * 0.6745 * 0.1, rel=0.1)  # of a normal distribution


def test_background_load_ends_with_its_block():
    with l01.background_load(for_s=30) as programs:
        assert all(program.poll() is None for program in programs)
    assert all(program.poll() is not None for program in programs)


def test_page_faults_count_fresh_memory():
    torch = pytest.importorskip("torch")
    pytest.importorskip("resource")
    x, out = torch.zeros(2**23), torch.zeros(2**23)
    assert l01.page_faults(torch.add, x, 1) > 10  # 4096 small pages or 16 huge ones
    assert l01.page_faults(lambda: torch.add(x, 1, out=out)) == 0


def test_a_real_engine_leaves_the_threads_as_they_were():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    engine = l01.real_engine(200)
    assert torch.get_num_threads() == threads
    assert engine.name in ("CUDA", "MXNet", "")
    assert engine.name == "" or 0 < engine.handed_in_s < engine.finished_s


def test_engine_sentences():
    assert "1.00 ms" in repr(l01.Engine("CUDA", 1e-3, 1.0))
    assert "1.00 s" in l01.Engine("CUDA", 1e-3, 1.0)._repr_html_()
    assert "MXNet is not installed" in str(l01.Engine("", None, None))
