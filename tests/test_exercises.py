"""Checks judge a learner's answer and never stop a notebook, write to stderr or give marks away."""

import logging
import math
import os
import subprocess
import sys
import textwrap
import threading
import types
import warnings

import numpy as np
import pytest
import torch

from labkit import exercises, guesses, marks
from labkit._kernel_sockets import unix_sockets
from labkit.exercises import check, exercise
from labkit.language import use_language

SUM_HINT = "You added where the exercise multiplies."


@exercise("99-1", points=5)
def product(task):
    pairs = [(task.rng.randint(3, 50), task.rng.randint(3, 50)) for _ in range(4)]
    got = [task.number(a, b) for a, b in pairs]
    if all(g == a + b for g, (a, b) in zip(got, pairs, strict=True)):
        task.fail(SUM_HINT)
    with task.part(3, "two positive numbers"):
        task.expect(all(g == a * b for g, (a, b) in zip(got, pairs, strict=True)), "Multiply.")
    with task.part(2, "a negative one"):
        task.expect(task.number(-2, 3) == -6, "Mind the sign.")


@exercise("99-2", points=4, limit_s=0.2)
def quick(task):
    task.call()


@exercise("99-3", points=4)
def doubled(task):
    x = torch.ones(3)
    task.expect(torch.equal(task.call(x, returns=torch.Tensor), torch.full((3,), 2.0)), "Twice as much.")
    x.mul_(5)  # the same object with other values: a remembered result is now wrong
    task.expect(torch.equal(task.call(x, returns=torch.Tensor), torch.full((3,), 10.0)), "Do not remember results.")
    task.cost(7, "bytes")


@exercise("99-4", points=3)
def badly_written(task):
    with task.part(1, "only one of three points"):
        task.call()


@exercise("99-5", points=2)
def just_a_number(task):
    task.expect(task.given_number() == 42, "Think again.")


@pytest.fixture(autouse=True)
def lesson_99(monkeypatch):
    module = types.ModuleType("labkit.lessons.l99")
    for found in (product, quick, doubled, badly_written, just_a_number):
        setattr(module, found.fn.__name__, found)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delenv("LABKIT_STRICT", raising=False)
    use_language("en")
    yield
    use_language("bn")


def test_untouched_stub_is_not_yet_and_earns_nothing(capsys):
    result = check("99-1", lambda a, b: None)
    assert (result.status, result.points, result.max_points, result.passed) == ("todo", 0, 5, False)
    assert "Not yet" in capsys.readouterr().out
    assert check("99-1", None).status == "todo"
    assert check("99-1", ...).status == "todo"


def test_not_implemented_is_not_yet():
    def stub(a, b):
        raise NotImplementedError

    assert check("99-1", stub).status == "todo"


def test_right_answer_earns_all():
    result = check("99-1", lambda a, b: a * b)
    assert (result.points, result.passed, result.hint) == (5, True, "")


def test_common_wrong_answer_gets_its_own_hint():
    result = check("99-1", lambda a, b: a + b)
    assert (result.points, result.status, result.hint) == (0, "wrong", SUM_HINT)


def test_parts_give_partial_points():
    result = check("99-1", lambda a, b: abs(a * b))
    assert (result.points, result.status, result.hint) == (3, "partial", "Mind the sign.")
    assert "✓ two positive numbers" in str(result)
    assert "✗ a negative one" in str(result)


def test_a_part_that_raises_loses_only_itself():
    def fragile(a, b):
        return a * b if a > 0 else 1 // 0

    result = check("99-1", fragile)
    assert (result.points, result.status) == (3, "partial")
    assert "ZeroDivisionError" in result.hint
    assert "return a * b if a > 0 else 1 // 0" in result.hint  # the learner's own line


def test_none_on_one_path_is_not_taken_for_a_stub():
    result = check("99-1", lambda a, b: a * b if a > 0 else None)
    assert (result.points, result.status) == (3, "partial")
    assert "return" in result.hint


@pytest.mark.parametrize(("answer", "said"), [
    (lambda a, b: 1 / 0, "ZeroDivisionError: division by zero"),
    (lambda a: a, "TypeError"),
    (lambda a, b: sys.exit(3), "SystemExit"),
    (lambda a, b: "six", "type str"),
    (lambda a, b: True, "type bool"),
    (lambda a, b: math.nan, "NaN"),
    (lambda a, b: torch.tensor(math.nan), "NaN"),
    (lambda a, b: np.float32("inf"), "infinite"),
    (lambda a, b: [1.0, 2.0], "type list"),
    (17, "function itself"),
])  # fmt: skip
def test_unusable_answers_are_told_kindly_and_earn_nothing(answer, said):
    result = check("99-1", answer)
    assert result.points == 0
    assert result.status in ("wrong", "error")
    assert said in result.hint


@pytest.mark.parametrize("number", [torch.tensor(6), np.int64(6), np.array(6.0)])
def test_numbers_of_other_libraries_count(number):
    assert check("99-1", lambda a, b: number * 0 + a * b).passed


def test_a_hanging_answer_is_stopped():
    def forever():
        while True:
            try:
                sum(range(1000))
            except:  # noqa: E722  (a learner's bare except must not defeat the limit)
                continue

    def patient():
        while True:
            sum(range(1000))

    for answer in (patient, forever):
        result = check("99-2", answer)
        assert (result.status, result.points) == ("error", 0)
        assert "0.2 seconds" in result.hint


def test_a_hanging_answer_is_stopped_outside_the_main_thread():
    stopped = threading.Event()

    def patient():
        try:
            while True:
                sum(range(1000))
        finally:
            stopped.set()

    results = []
    thread = threading.Thread(target=lambda: results.append(check("99-2", patient)))
    thread.start()
    thread.join(20)
    assert results[0].status == "error"
    assert stopped.wait(5)  # and the answer's own thread ended: it does not burn the core for ever


def test_an_interrupt_still_interrupts():
    def interrupted(a, b):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check("99-1", interrupted)


@pytest.mark.filterwarnings("ignore:careful")
def test_nothing_reaches_stderr(capfd):
    # A library's handler keeps the stream that was standard error when it was made, so redirecting does not reach it.
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger("anything").addHandler(handler)

    def noisy(a, b):
        print("python", file=sys.stderr)
        warnings.warn("careful", stacklevel=1)
        logging.getLogger("anything").error("logged")
        os.write(2, b"from C\n")
        subprocess.run([sys.executable, "-c", "import sys; print('child', file=sys.stderr)"], check=True)
        return a + b

    result = check("99-1", noisy)
    logging.getLogger("anything").removeHandler(handler)
    assert logging.getLogger("anything").isEnabledFor(logging.ERROR)  # logging is on again
    assert capfd.readouterr().err == ""
    print("after", file=sys.stderr)
    os.write(2, b"C after\n")
    assert capfd.readouterr().err == "after\nC after\n"  # and so is standard error
    assert "python" in result.printed


def test_print_helps_to_search_a_fault_and_is_silent_when_right(capsys):
    def talking(a, b):
        print("a is <b>", a)
        return a * b if a < 0 else 0

    assert "a is <b>" in str(check("99-1", talking))
    capsys.readouterr()
    result = check("99-1", lambda a, b: print("noise") or a * b)
    assert result.passed
    assert "noise" not in capsys.readouterr().out


def test_html_is_escaped_and_says_the_verdict_in_words():
    result = check("99-1", lambda a, b: print("<script>") or 0)
    html = result._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "✗" in html
    assert "Not right yet" in html
    assert 'lang="en"' in html
    assert 'role="status"' in html


def test_verdict_speaks_bengali():
    use_language("bn")
    result = check("99-1", lambda a, b: None)
    assert result.title() == "○ অনুশীলনী 99.1 · এখনো করা হয়নি · নম্বর 0/5"
    assert 'lang="bn"' in result._repr_html_()


def test_inputs_vary_and_a_seed_repeats_them():
    seen = []
    wrong = lambda a, b: seen.append((a, b)) or 0  # noqa: E731
    first = check("99-1", wrong)
    check("99-1", wrong)
    again = check("99-1", wrong, seed=first.seed)
    runs = [seen[:5], seen[5:10], seen[10:]]
    assert again.seed == first.seed
    assert runs[0] == runs[2]
    assert runs[0] != runs[1]


def test_strict_raises_with_the_cause_and_only_when_wrong(monkeypatch):
    monkeypatch.setenv("LABKIT_STRICT", "1")
    assert check("99-1", lambda a, b: a * b).passed
    with pytest.raises(exercises.ExerciseError, match="Not right yet"):
        check("99-1", lambda a, b: a + b)
    with pytest.raises(exercises.ExerciseError) as caught:
        check("99-4", lambda: 1)
    assert isinstance(caught.value.__cause__, ValueError)  # the check's own fault is not hidden
    with pytest.raises(exercises.ExerciseError):
        check("99-77", 1)


def test_misuse_of_check_does_not_stop_a_notebook():
    assert "99-1, 99-2" in check("99-77", 1).hint
    assert check("98-1", 1).status == "error"
    assert check("no id", 1).status == "error"
    assert 'lab.check("99-1", answer)' in check("99-1").hint


def test_a_remembered_result_fails():
    memory = {}

    def caching(x):
        return memory.setdefault(id(x), x * 2)

    assert not check("99-3", caching).passed
    assert check("99-3", lambda x: x * 2).passed


def test_score_keeps_the_best_and_only_for_right_answers(monkeypatch):
    monkeypatch.setattr(exercises, "_best_cost", {"99-3": 5})
    assert check("99-3", lambda x: x * 2).cost == (7, "bytes", 5)
    assert check("99-3", lambda x: x).cost is None


def test_numbers_as_answers():
    assert check("99-5", 42).passed
    assert check("99-5", 41).hint == "Think again."
    assert check("99-5", lambda: 42).status == "wrong"
    assert check("99-5", math.nan).status == "wrong"


def test_an_id_must_name_its_lesson():
    with pytest.raises(ValueError, match="03-1"):
        exercise("3-1", points=5)


@pytest.mark.slow
def test_nbgrader_reads_the_points_of_a_test_cell():
    nbgrader_utils = pytest.importorskip("nbgrader.utils")
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell, new_notebook

    lesson = textwrap.dedent("""
        import sys, types, labkit as lab
        from labkit.exercises import exercise
        lab.use_language("en")
        module = types.ModuleType("labkit.lessons.l99")
        def rule(task):
            with task.part(3, "positive"):
                task.expect(task.number(2) == 4, "no")
            with task.part(2, "negative"):
                task.expect(task.number(-2) == -4, "no")
        module.rule = exercise("99-1", points=5)(rule)
        sys.modules[module.__name__] = module
    """)
    answers = ["None", "2 * x", "abs(2 * x)", "print(x, file=sys.stderr) or 2 * x", "1 / 0"]
    cells = [new_code_cell(lesson)]
    for answer in answers:
        cell = new_code_cell(f"lab.check('99-1', lambda x: {answer}).points")
        cell.metadata["nbgrader"] = {"grade": True, "solution": False, "points": 5, "grade_id": "g", "locked": True}
        cells.append(cell)
    cells.append(new_code_cell("lab.check('99-1', lambda x: 2 * x)"))
    notebook = new_notebook(cells=cells)
    client = NotebookClient(notebook, timeout=60, kernel_name="python3")
    with unix_sockets(client):
        client.execute()
    graded = [nbgrader_utils.determine_grade(cell) for cell in notebook.cells[1:-1]]
    assert graded == [(0, 5), (5, 5), (3, 5), (5, 5), (0, 5)]
    assert len(notebook.cells[-1].outputs) == 1  # shown once, although the result is the cell's last value


# --- guesses ---


@pytest.fixture(autouse=True)
def fresh_session(monkeypatch):
    monkeypatch.setattr(guesses, "_session", {})


def test_a_guess_is_kept_and_recalled():
    guesses.predict("99-a", 2.0, unit="x")
    assert guesses.predict("99-a").value == 2.0
    assert guesses.predict("99-never").value is None


@pytest.mark.parametrize(("given", "value"), [(3, 3.0), ("2.5", 2.5), ("২.৫", 2.5), (np.float32(2), 2.0), (None, None)])
def test_what_counts_as_a_number(given, value):
    assert guesses.predict("99-a", given).value == value


@pytest.mark.parametrize("given", ["two", [1], math.nan, "2x"])
def test_what_does_not_is_asked_for_again(given):
    prediction = guesses.predict("99-a", given)
    assert prediction.value is None
    assert "not a number" in str(prediction)
    assert str(guesses.predict("99-a", None)).startswith("○ No guess yet")


@pytest.mark.parametrize(("guess", "measured", "said"), [
    (2.0, 2.1, "close"),
    (2.0, 6.0, "3.0 times as much"),
    (6.0, 2.0, "3.0 times too high"),
    (4.0, 4.0, "that is what came out"),
    (0.0, 3.0, "the measurement says 3 times."),
    (None, 3.0, "had not written a guess"),
    (2.0, math.nan, "no usable measurement"),
])  # fmt: skip
def test_sentence_compares_guess_and_measurement(guess, measured, said):
    assert said in str(guesses.predict("99-a", guess, unit="x").beside(measured))


def test_ratios_and_measurements_can_stand_beside_a_guess():
    ratio = types.SimpleNamespace(value=3.0, low=2.9, high=3.1)
    assert guesses.predict("99-a", 1.0).beside(ratio).prediction.measured == 3.0
    measurement = types.SimpleNamespace(median_s=0.002)
    assert "2 ms" in str(guesses.predict("99-b", 2.0, unit="ms").beside(measurement))


def test_summary_lists_the_lesson_in_order():
    guesses.predict("99-a", 2.0, unit="x").beside(3.0)
    guesses.predict("98-a", 1.0)
    guesses.predict("99-b", None, unit="%")
    assert guesses.predictions("99").rows() == [("99-a", "2 times", "3 times"), ("99-b", "–", "–")]
    assert "<td>99-a</td>" in guesses.predictions("99")._repr_html_()


def test_bengali_sentence():
    use_language("bn")
    text = str(guesses.predict("99-a", 6.0, unit="x").beside(2.0))
    assert text == "আপনি বলেছিলেন 6 গুণ, মেপে পাওয়া গেছে 2 গুণ: অনুমানটি 3.0 গুণ বেশি ছিল।".replace("য়", "য\u09bc")


def test_every_status_has_its_own_sign_or_word():
    titles = {marks.CheckResult("99-1", 0, 1, status).title() for status in marks._LOOKS}
    assert len(titles) == len(marks._LOOKS)
