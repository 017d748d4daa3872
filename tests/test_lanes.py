"""The lane runner counts what ran, and does not let a lane pass on nothing or on a skip that nobody listed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import lanes

ALLOWED = [("*", "no CUDA GPU")]


@pytest.fixture(autouse=True)
def _bare_pytest(monkeypatch):
    """The runs inside need none of the installed plugins, and start faster without."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def outcome_of(folder, text, allowed=ALLOWED):
    (folder / "test_it.py").write_text(text)
    command = lanes.pytest("-c", "/dev/null", "-p", "no:cacheprovider", f"--rootdir={folder}", str(folder))
    return lanes.run([command], allowed)


def test_passes_and_failures_are_counted(tmp_path):
    outcome = outcome_of(tmp_path, "def test_a(): pass\ndef test_b(): pass\ndef test_c(): assert 0\n")
    assert (outcome.passed, outcome.failed, outcome.skips) == (2, 1, [])
    assert not outcome.ok


def test_a_lane_without_tests_fails(tmp_path):
    outcome = outcome_of(tmp_path, "")
    assert outcome.complaints == ["no test ran"]
    assert not outcome.ok


def test_a_lane_that_cannot_start_fails(tmp_path):
    assert outcome_of(tmp_path, "import no_such_module_anywhere\n").failed == 1
    assert lanes.run([lanes.pytest("no/such/file.py")], ALLOWED).failed == 1


@pytest.mark.parametrize(("reason", "ok"), [("no CUDA GPU", True), ("not today", False)])
def test_only_listed_skips_are_accepted(tmp_path, reason, ok):
    text = f"import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip({reason!r})\n"
    outcome = outcome_of(tmp_path, text)
    assert [skip[1] for skip in outcome.skips] == [reason]
    assert outcome.ok is ok


def test_an_expected_failure_is_a_skip_like_any_other(tmp_path):
    outcome = outcome_of(tmp_path, "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_a(): assert 0\n")
    assert not outcome.ok


def test_threads_wait_patiently_where_processes_run_side_by_side(monkeypatch, capsys):
    sharing = {name for name, commands in lanes.LANES.items() if any("-n" in command for command in commands)}
    assert sharing
    # Chromium draws beside the kernel that it shows; the first two measure nothing.
    assert set(lanes.LANES) - sharing - {"lint", "editions", "browser"} == set(lanes.TIMED)
    looks = [sys.executable, "-c", "import os; raise SystemExit(os.environ.get('OMP_WAIT_POLICY') != 'passive')"]
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(lanes, "LANES", {"unit": [looks], "nbval": [looks], "timing": [looks], "colab": [looks]})
    assert lanes.main(["--only", "unit"]) == 0
    for as_readers_have_it in ("nbval", "timing", "colab"):
        assert lanes.main(["--only", as_readers_have_it]) == 1


def test_what_one_lane_makes_for_colab_another_finds(tmp_path, monkeypatch, capsys):
    told = tmp_path / "told"
    makes = f"import os, pathlib; there = pathlib.Path(os.environ['LABKIT_COLAB']); (there / 'made').touch(); " \
            f"pathlib.Path({str(told)!r}).write_text(str(there))"  # fmt: skip
    finds = "import os; raise SystemExit(not os.path.exists(os.environ['LABKIT_COLAB'] + '/made'))"
    python = [sys.executable, "-c"]
    monkeypatch.setattr(lanes, "LANES", {"unit-slow": [[*python, makes]], "timing": [[*python, finds]]})
    assert lanes.main(["--only", "unit-slow,timing"]) == 0
    assert not Path(told.read_text()).exists()  # and nothing is left behind
    assert lanes.main(["--only", "timing"]) == 1


def test_other_commands_count_as_one():
    assert lanes.run([[sys.executable, "-c", "pass"]], ALLOWED).passed == 1
    broken = lanes.run([[sys.executable, "-c", "pass"], [sys.executable, "-c", "raise SystemExit(3)"]], ALLOWED)
    assert (broken.passed, broken.failed) == (1, 1)


def test_the_closing_line_counts_complaints_as_failures():
    good = lanes.Outcome(passed=3, skips=[("t::a", "no CUDA GPU")], seconds=2.4)
    bad = lanes.Outcome(complaints=["no test ran"])
    text = lanes.summary({"unit": good, "nbval": bad})
    assert text.endswith("\n3 passed, 1 failed, 1 skipped")
    assert "skipped: t::a: no CUDA GPU" in text
    assert "nbval: no test ran" in text
    assert text.count("FAILED") == 1


def test_every_line_of_the_list_says_why(tmp_path):
    assert lanes.is_allowed("tests.test_x::test_y", "no CUDA GPU", lanes.allowed_skips())
    assert not lanes.is_allowed("tests.test_x::test_y", "", lanes.allowed_skips())
    (tmp_path / "list.txt").write_text("*|no CUDA GPU\n")
    with pytest.raises(ValueError, match="why it is acceptable"):
        lanes.allowed_skips(tmp_path / "list.txt")


def test_every_marker_has_a_lane():
    """A test that no lane's expression selects would never run."""
    from _pytest.mark.expression import Expression

    commands = [command for lane in lanes.LANES.values() for command in lane if "-m" in command[3:]]
    expressions = [Expression.compile(command[command.index("-m", 3) + 1]) for command in commands]
    for marks in ([], ["slow"], ["netns"], ["timing"], ["browser"], ["gpu"], ["slow", "timing"], ["slow", "browser"],
                  ["slow", "gpu"], ["timing", "gpu"], ["slow", "netns"], ["colab"], ["slow", "alone"]):  # fmt: skip
        chosen = sum(expression.evaluate(lambda name, marks=marks: name in marks) for expression in expressions)
        assert chosen == 1, marks
