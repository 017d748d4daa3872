"""Lesson 01, measuring honestly: its toy machine, its disturbances, its checks."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass

from labkit import marks, units
from labkit._background_load import background_load
from labkit.exercises import exercise
from labkit.language import t

NEEDS = ("compiler",)
SMALLER_WITHOUT = ("gpu",)

__all__ = ["Engine", "ToyMachine", "background_load", "page_faults", "real_engine"]

HICCUP = 30.0  # times as long: what a run costs when another program gets in its way


class ToyMachine:
    """A computer whose truth we know. No real time passes: a job only moves the hand of ``clock()``.

    ``noise`` is the spread of a run's time (0.05: about 5 % up or down), ``hiccups`` the share of runs that take 30
    times as long, ``drift(now_s)`` a factor that changes while time passes: a processor that warms up, a program that
    ends. The same ``seed`` gives the same story.
    """

    def __init__(self, seed: int, *, noise: float = 0.0, hiccups: float = 0.0, drift=None):
        self.now_ns = 0
        self.random, self.noise, self.hiccups, self.drift = random.Random(seed), noise, hiccups, drift

    def clock(self) -> int:
        """Nanoseconds, as ``time.perf_counter_ns`` gives them; hand it to ``measure()`` or ``compare()``."""
        return self.now_ns

    def job(self, job_s: float, *, first_s: float = 0.0):
        """A function that takes ``job_s`` seconds of this machine's time, and ``first_s`` more on its first call."""
        setup_s = [first_s]

        def run():
            factor = self.drift(self.now_ns / 1e9) if self.drift else 1.0
            if self.noise:
                factor *= math.exp(self.random.gauss(0.0, self.noise))
            if self.random.random() < self.hiccups:
                factor *= HICCUP
            extra_s = setup_s.pop() if setup_s else 0.0
            self.now_ns += round((job_s * factor + extra_s) * 1e9)
            return 1

        return run


def page_faults(fn, *args, calls: int = 10) -> int | None:
    """Memory pages that the system had to hand out during one call of ``fn(*args)``; None where it does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    fn(*args)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(calls):
        fn(*args)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // calls


@dataclass(frozen=True, repr=False)
class Engine:
    """What a naive clock and a patient clock saw of one job on an asynchronous device."""

    name: str
    handed_in_s: float | None
    finished_s: float | None

    def __str__(self):
        if self.handed_in_s is None:
            return t("There is no CUDA GPU here and MXNet is not installed: the thread above is the only such device.")
        return t(
            "{name}: the call came back after {handed}, the work was finished after {finished}.",
            name=self.name, handed=units.seconds(self.handed_in_s), finished=units.seconds(self.finished_s),
        )

    __repr__ = __str__

    def _repr_html_(self):
        return marks.box(str(self), "", "#0b57d0")


def real_engine(n: int = 1500) -> Engine:
    """The same trick on a real asynchronous device: a CUDA GPU, else MXNet's engine, else none."""
    import torch

    from labkit import hardware, mx

    if hardware.has_cuda():
        x = torch.randn(2 * n, 2 * n, device="cuda")
        return Engine("CUDA", *_hand_in_and_finish(lambda: [x @ x for _ in range(10)], lambda _: hardware.sync()))
    if not mx.is_available():
        return Engine("", None, None)
    threads = torch.get_num_threads()
    try:
        nd = mx.load().nd
        x = nd.random.normal(shape=(n, n))
        return Engine("MXNet", *_hand_in_and_finish(lambda: nd.dot(x, x), lambda y: y.wait_to_read()))
    except mx.MXNetUnavailableError:
        return Engine("", None, None)
    finally:
        torch.set_num_threads(threads)  # importing MXNet leaves torch with a single one


def _hand_in_and_finish(submit, wait):
    wait(submit())  # the first call pays for set-up
    start = time.perf_counter()
    job = submit()
    handed_in_s = time.perf_counter() - start
    wait(job)
    return handed_in_s, time.perf_counter() - start


class _Queue:
    """A toy asynchronous device: handing a job in takes a microsecond; jobs are done one after the other."""

    def __init__(self, job_s: float, earlier_s: float):
        self.now_s, self.free_s, self.job_s = 0.0, earlier_s, job_s
        self.jobs = self.reads = 0

    def submit(self):
        self.now_s += 1e-6
        self.free_s = max(self.free_s, self.now_s) + self.job_s
        self.jobs += 1

    def wait(self):
        self.now_s = max(self.now_s, self.free_s)

    def clock(self):
        self.reads += 1
        return self.now_s


@exercise("01-1", points=4)
def timed(task):
    """``timed(fn, wait, clock)`` -> seconds from handing the job in to its end."""
    idle = _Queue(task.rng.uniform(0.5, 2.0), 0.0)
    busy = _Queue(task.rng.uniform(0.5, 2.0), task.rng.uniform(3.0, 5.0))
    with task.part(2, t("waits until the work is done")):
        got = task.number(idle.submit, idle.wait, idle.clock)
        task.expect(idle.reads, t("You read another clock. Use `clock()`, the one that your function is given."))
        task.expect(idle.jobs == 1, t("`fn` has to be called exactly once."))
        task.expect(not -1e-3 < got < 1e-3, t(
            "You measured the handing-in only: `fn()` comes back at once. Call `wait()` before you read the clock the "
            "second time."))
        task.expect(got > 0, t("A negative time: subtract the start from the end, not the end from the start."))
        task.expect(_near(got, idle.job_s), t("Return the end minus the start, in seconds, and nothing more."))
    with task.part(2, t("leaves earlier work out")):
        got = task.number(busy.submit, busy.wait, busy.clock)
        task.expect(got < 2.5, t(
            "The device was still busy with an earlier job, and you counted that too. Call `wait()` once before you "
            "read the clock the first time."))
        task.expect(_near(got, busy.job_s), t(
            "On a device that is still busy the time is wrong: `wait()`, read the clock, `fn()`, `wait()`, read the "
            "clock again."))


@exercise("01-2", points=5)
def aa_wrong_share(task):
    """``aa_wrong_share(judge, trials)`` -> share of trials in which ``judge()`` names a winner."""
    trials = task.rng.randint(14, 30)
    verdicts = ["faster"] * 2 + ["slower"] * 3 + ["same"] * 4 + ["undecided"]
    verdicts += task.rng.choices(["faster", "slower", "undecided"], k=trials - len(verdicts))
    task.rng.shuffle(verdicts)
    told, count = iter(verdicts), {kind: verdicts.count(kind) for kind in verdicts}
    winners = count["faster"] + count["slower"]
    with task.part(1, t("asks the judge anew in every trial")):
        got = task.number(lambda: next(told, "same"), trials)
        task.expect(next(told, None) is None, t(
            "Call `judge()` once in every trial: a new measurement each time, not one that you remember."))
    with task.part(4, t("counts every wrong winner")):
        if not _near(got, winners / trials):
            task.expect(not _near(got, winners), t("That is how many. A share is wanted: divide by `trials`."))
            task.expect(not _near(got, 100 * winners / trials), t("That is per cent. A share lies between 0 and 1."))
            task.expect(not _near(got * trials, count["faster"]), t(
                "Both functions are equal, so `slower` is a wrong winner as well: it says that the other one won."))
            task.expect(not _near(got * trials, winners + count["undecided"]), t(
                "`undecided` names no winner: it says that nothing can be said yet. Do not count it."))
            task.expect(not _near(got * trials, trials - winners), t(
                "That is the share of right answers. Count the trials in which a winner was named."))
            task.fail(t("Count the trials in which `judge()` says `faster` or `slower`, and divide by `trials`."))


@exercise("01-3", points=8)
def abba_ratio(task):
    """``abba_ratio(run_a, run_b, clock, rounds)`` -> time of A / time of B, the runs taking turns A B B A."""
    rounds, true = 2 * task.rng.randint(4, 9) + 1, task.rng.uniform(1.2, 1.6)
    with task.part(2, t("finds a real difference")):
        got, _ = _ratio_on(task, ToyMachine(task.seed), rounds, true)
        task.expect(not _near(got, 1 / true), t(
            "Upside down: the time of A divided by the time of B, so that above 1 means B is faster."))
        task.expect(_near(got, true), t(
            "Wrong even on a machine that nothing disturbs: add up A's times and B's times in a round, and divide."))
    with task.part(4, t("a machine that slows down makes no winner")):
        slope = task.rng.uniform(20.0, 35.0)  # per second: each run is 2 to 3.5 % slower than the one before
        slowing = ToyMachine(task.seed, drift=lambda now_s: 1 + slope * now_s)
        got, order = _ratio_on(task, slowing, rounds, 1.0)
        task.expect("".join(sorted(order)) not in (order, order[::-1]), t(
            "First all of one, then all of the other: the machine slowed down meanwhile, and you call that a "
            "difference. Let them take turns."))
        task.expect(not order.startswith(("ABAB", "BABA")), t(
            "In A B A B the second one always runs a little later. In A B B A each is early once and late once."))
        task.expect(order.count("A") == order.count("B") == 2 * rounds, t("Each round has four runs: A B B A."))
        task.expect(abs(got - 1) < 0.003, t(
            "A and B are equal here, only the machine slows down; still you found a winner. Compare within a round."))
    with task.part(2, t("one hiccup decides nothing")):
        got, _ = _ratio_on(task, ToyMachine(task.seed), rounds, true, hiccup=task.rng.randrange(4 * rounds))
        task.expect(_near(got, true), t(
            "One single run was disturbed, and it moved your answer. Make one ratio a round and return their median."))


def _ratio_on(task, toy, rounds, true, hiccup=-1):
    """The learner's ratio on a toy machine where A takes ``true`` times as long as B, and the order of the runs."""
    order = []

    def runner(letter, run):
        def go():
            order.append(letter)
            for _ in range(int(HICCUP) if len(order) - 1 == hiccup else 1):
                run()

        return go

    a, b = runner("A", toy.job(true * 1e-3)), runner("B", toy.job(1e-3))
    return task.number(a, b, lambda: toy.now_ns / 1e9, rounds), "".join(order)


def _near(got, truth) -> bool:
    return math.isclose(got, truth, rel_tol=1e-4, abs_tol=1e-9)
