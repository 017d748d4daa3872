"""The root cause told from its echoes, and said in a few lines."""

from __future__ import annotations

import pytest

import labkit as lab
from labkit import _rank_errors


@pytest.fixture(autouse=True)
def _english():
    lab.use_language("en")


def raised(index: int, kind: str, message: str, time_s: float, line: int = 5) -> _rank_errors.Notes:
    state = {"kind": "raised", "type": kind, "message": message, "time": time_s, "frames": [[line, "<module>", "f()"]]}
    return _rank_errors.Notes(f"Rank {index}", index, state)


def explained(*notes, reason="ended", problem=None) -> Exception:
    return _rank_errors.explain(reason, notes, seconds=8, source=["# torchrun", "a", "b"], problem=problem or {})


ECHO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:38211"


def test_an_echo_is_not_the_cause_even_when_it_came_first():
    error = explained(raised(0, "RuntimeError", ECHO, 1.0), raised(1, "ValueError", "loss is NaN", 2.0, line=9))
    assert (error.rank, error.line) == (1, 9)
    assert str(error).splitlines()[0] == "Rank 1 failed at line 9: ValueError: loss is NaN"


def test_of_two_causes_the_first_one_counts():
    error = explained(raised(0, "KeyError", "'b'", 2.0, line=7), raised(1, "ValueError", "a", 1.0))
    assert error.rank == 1


def test_the_same_error_everywhere_is_said_of_all():
    error = explained(raised(0, "ValueError", "a", 2.0), raised(1, "ValueError", "a", 1.0))
    assert str(error).startswith("Every rank failed at line 5: ValueError: a")
    assert "have been stopped" not in str(error)


def test_a_killed_rank_is_the_cause_of_a_strange_runtime_error():
    killed = _rank_errors.Notes("Rank 1", 1, code=-9)
    error = explained(raised(0, "RuntimeError", "words nobody knows", 1.0), killed)
    assert (error.rank, error.kind) == (1, "crashed")
    assert explained(raised(0, "ValueError", "real", 1.0), killed).rank == 0


def test_a_rank_that_left_early():
    left = _rank_errors.Notes("Rank 1", 1, {"kind": "finished", "frames": [[8, "<module>", "sys.exit(0)"]], "time": 1})
    error = explained(raised(0, "RuntimeError", ECHO, 2.0), left)
    assert (error.rank, error.line, error.kind) == (1, 8, "left")
    assert "127.0.0.1" not in str(error)


def test_a_rank_that_vanished():
    error = explained(raised(0, "RuntimeError", ECHO, 2.0), _rank_errors.Notes("Rank 1", 1))
    assert error.kind == "lost"


def test_a_crash_after_the_end_asks_for_a_barrier():
    aborted = _rank_errors.Notes("Rank 0", 0, {"kind": "finished", "frames": [], "time": 1}, code=-6)
    assert "dist.barrier(); dist.destroy_process_group()" in str(explained(aborted))


def test_a_stall_says_where_each_rank_waits():
    where = [{"line": 2, "call": "all_reduce", "waits": True}, {"line": 3, "call": "barrier", "waits": True}]
    notes = [_rank_errors.Notes(f"Rank {i}", i, where=place) for i, place in enumerate(where)]
    error = explained(*notes, reason="stalled")
    assert isinstance(error, TimeoutError)
    assert "Rank 0 waits at line 2 in all_reduce" in str(error)
    assert "same order" in str(error)


def test_a_taken_port():
    assert "Port 29500" in str(explained(problem={"port": 29500}))


def test_a_long_message_is_cut_and_freed_of_torchs_own_places():
    error = explained(raised(0, "RuntimeError", "[enforce fail at a/b.cc:12] one\ntwo\nthree\nfour", 1.0))
    assert "one\ntwo\nthree" in str(error)
    assert "four" not in str(error)
    assert ".cc" not in str(error)


@pytest.mark.parametrize(
    ("kind", "message", "words"),
    [
        ("OSError", "[Errno 28] No space left on device", "no space"),
        ("DistNetworkError", "EADDRINUSE", "free port"),
        ("NameError", "name 'x' is not defined", "only this cell"),
        ("RuntimeError", "op.preamble.length <= op.nbytes. 16 vs 12", "different sizes"),
        ("SIGKILL", "", "memory"),
        ("ValueError", "my own", ""),
    ],
)
def test_hints(kind, message, words):
    from labkit._rank_hints import hint_for

    assert words in hint_for(kind, message)
    assert bool(words) == bool(hint_for(kind, message))
