"""``make bench``: one table of every target beside its goal, and an exit status that tells when one falls short."""

from __future__ import annotations

import json

import pytest

from tests import bench
from tests.bench import Case, Outcome, growth, lessons
from tests.bench import __main__ as command

# What README and issue tracker promise; a bench that got lost would otherwise be missed by nobody.
PROMISED = {"advise", "capstone", "distributed", "fusion", "growth", "import", "launch", "lessons", "measure",
            "pipeline", "scale", "verdicts"}  # fmt: skip


def broken(quick):
    raise OSError("no such clock")


CASES = {
    "good": Case("kept", "at least 3", lambda quick: Outcome("4" if quick else "5", ok=True)),
    "bad": Case("missed", "at most 0.050 s", lambda quick: Outcome("it took 0.061 s, and " + 12 * "more ", ok=False)),
    "scale": Case("for scale", "none", lambda quick: Outcome("7", ok=None)),
    "broken": Case("breaks", "to run", broken),
}


@pytest.fixture
def found(monkeypatch):
    """Only the fake benches of these names."""

    def only(*names):
        monkeypatch.setattr(bench, "discover", lambda: {name: lambda name=name: [CASES[name]] for name in names})

    return only


@pytest.mark.parametrize(("names", "code"), [(["good"], 0), (["good", "scale"], 0), (["good", "bad"], 1),
                                             (["broken"], 1)])  # fmt: skip
def test_the_exit_status_tells_whether_every_goal_was_met(found, names, code, capsys):
    found(*names)
    assert command.main([]) == code
    assert f"{len(names)} targets, {code} short of the goal" in capsys.readouterr().out


def test_one_table_shows_each_result_beside_its_goal(found, capsys):
    found("broken", "good", "bad", "scale")
    assert command.main([]) == 1
    meanwhile, printed, _ = (part.splitlines() for part in capsys.readouterr().out.split("\n\n"))
    assert [line.split()[0] for line in meanwhile[1::2]] == ["SHORT", "SHORT", "ok", "-"]  # each as soon as it is known
    heads = printed[0]
    rows = {line.split()[1]: line for line in printed[1:] if line[:7].strip()}
    assert list(rows) == ["bad:", "broken:", "good:", "scale:"]
    for name, (mark, result, goal) in {"good:": ("ok", "5", "at least 3"), "scale:": ("-", "7", "none"),
                                       "broken:": ("SHORT", "OSError: no such clock", "to run")}.items():  # fmt: skip
        line = rows[name]
        assert line.startswith(mark)
        assert line[heads.index("result") :].startswith(result)
        assert line[heads.index("goal") :].startswith(goal)
    assert max(map(len, printed)) < 140
    assert " ".join(printed).count("more") == 12  # nothing is cut off


def test_a_case_that_came_too_early_is_visited_again_after_all_others(monkeypatch, capsys):
    visited = []

    def case(name, ripe_at):
        def run(quick):
            visited.append(name)
            ripe = visited.count(name) >= ripe_at
            return Outcome(f"visit {visited.count(name)}", ok=ripe, too_early=not ripe)

        return Case(name, "idle", run)

    def main(*ripe_at, arguments=()):
        visited.clear()
        cases = [case(name, at) for name, at in zip("ab", ripe_at, strict=False)] + [case("c", 1)]
        monkeypatch.setattr(bench, "discover", lambda: {"x": lambda: cases})
        return command.main(list(arguments)), "".join(visited), capsys.readouterr().out.split("\n\n")[1]

    code, order, printed = main(3, 2)
    assert (code, order) == (0, "abcaba")
    assert printed.count("ok ") == 3
    assert "visit 3" in printed
    assert "visit 2" in printed
    code, order, printed = main(99)  # never: it falls short, and there is an end
    assert (code, order) == (1, "ac" + command.MORE_VISITS * "a")
    assert printed.count("SHORT") == 1
    assert main(2, arguments=["--quick"])[:2] == (1, "ac")


def test_some_can_be_chosen_listed_and_kept(found, capsys, tmp_path):
    found("good", "bad")
    assert command.main(["--only", "good", "--quick", "--json", str(tmp_path / "table.json")]) == 0
    [row] = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert (row["bench"], row["result"], row["goal"], row["ok"]) == ("good", "4", "at least 3", True)
    assert command.main(["--list"]) == 0
    assert "bad: missed  (goal: at most 0.050 s)" in capsys.readouterr().out
    for wrong in (["--only", "nothing"], ["--match", "nothing"]):
        with pytest.raises(SystemExit):
            command.main(wrong)


def test_every_promise_has_its_bench_and_every_case_its_goal():
    pytest.importorskip("torch")
    there = bench.discover()
    assert set(there) >= PROMISED
    cases = [case for make in there.values() for case in make()]
    assert all(case.name and case.goal for case in cases)


def test_growth_out_of_proportion_falls_short():
    def costs(*seconds, memory=(100, 100, 100)):
        return [growth.Cost(s, m) for s, m in zip(seconds, memory, strict=True)]

    assert growth.judged((3, 6, 12), costs(3, 6, 12), "lessons").ok
    assert growth.judged((3, 6, 12), costs(5, 6, 8), "lessons").ok  # a fixed part
    assert not growth.judged((3, 6, 12), costs(3, 12, 48), "lessons").ok
    assert not growth.judged((3, 6, 12), costs(3, 6, 12, memory=(100, 200, 400)), "lessons").ok


def test_lessons_have_the_budgets_of_the_course():
    paths = lessons.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")
    assert {lessons.budget_s(path) for path in paths} <= {20, 45, 60, 75}
    assert lessons.budget_s(lessons.NOTEBOOKS / "12_one_more.ipynb") == 75  # nothing is registered by hand
    assert sum(lessons.BUDGETS_S.values()) <= lessons.COURSE_S + 20  # the start page is read, not worked through
