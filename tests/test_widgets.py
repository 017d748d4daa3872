"""The base of the labs, without a browser: the function's value, the guess, the worker, its Stop, its errors."""

import json
import threading
import time

import pytest

from labkit import _lab_worker, guesses, plots, widgets
from labkit._correctness import ResultsDifferError
from labkit._lab import Choice, Lab, Number, Question, Table, Text, step, uninterrupted, with_guess

pytestmark = pytest.mark.usefixtures("english")


class SquareLab(Lab):
    """Squares a number; ``inside`` is what happens meanwhile."""

    key = "90-square"

    def __init__(self, inside=lambda: None, **start):
        self.inside = inside
        super().__init__(**start)

    def title(self):
        return "SquareLab"

    def controls(self):
        return [Choice("n", "n", (2, 3, 4)), Number("scale", "scale", 1.0, 0.5, 2.0), Number("count", "count", 5, 1, 9),
                Text("name", "name", "BDT")]  # fmt: skip

    def question(self):
        return Question("How large is the square?", "cm")

    def measure(self, *, n, scale, count, name):
        self.inside()
        return scale * n * n

    def table(self, value):
        return Table(["square"], [[f"{value:g}"]])

    def figure(self, value, guess):
        return with_guess(plots.lines([1, 2], {"square": [0, value]}, xlabel="x", ylabel="y"), y=guess)

    def verdict(self, value):
        return f"It is {value:g}."

    def why(self, value):
        return "A number times itself."

    def card(self, value):
        return {"square": value}


@pytest.fixture(autouse=True)
def _no_guesses(monkeypatch):
    monkeypatch.setattr(guesses, "_session", {})


@pytest.fixture
def _quick_patience(monkeypatch):
    monkeypatch.setattr(_lab_worker, "STOP_S", 0.2)
    monkeypatch.setattr(_lab_worker, "LET_GO_S", 0.5)


def until(condition, limit_s=10.0):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.01)


# the value and the controls


def test_run_returns_what_the_function_returns():
    lab = SquareLab()
    assert lab.run(n=3, scale=2) == 18 == lab.value
    assert lab.state == "done"
    assert lab.run() == 4  # the defaults: a run leaves no trace in the next


def test_other_defaults_and_what_they_refuse():
    assert SquareLab(n=4).run() == 16
    for wrong, said in (({"n": 5}, "2, 3, 4"), ({"scale": 9}, "0.5 to 2"), ({"scale": "much"}, "0.5 to 2"),
                        ({"m": 1}, "n, scale, count, name"), ({"name": " "}, "short word")):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            SquareLab(**wrong)
        with pytest.raises(ValueError, match=said):
            SquareLab().run(**wrong)


def test_a_whole_number_stays_whole_and_bengali_digits_are_read():
    [_, scale, count, _] = SquareLab().controls()
    assert count.read("৭") == 7
    assert isinstance(count.read(7.0), int)
    assert scale.read("১.৫") == 1.5


def test_the_functions_own_error_comes_through_headless():
    lab = SquareLab(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lab.run()
    assert lab.state == "failed"
    assert lab.value is None


# guesses


def test_a_guess_is_held_against_the_measurement_and_kept_for_the_summary():
    lab = SquareLab()
    lab.run(n=3, guess="৪")
    assert "You guessed 4 cm; the measurement says 9 cm" in str(lab.result)
    lab.run(n=4, guess=16)
    assert guesses.predictions("90").rows() == [("90-square", "4 cm", "9 cm"), ("90-square (2)", "16 cm", "16 cm")]


def test_without_a_guess_nothing_is_kept_and_with_nonsense_the_lab_still_runs():
    lab = SquareLab()
    lab.run(guess="  ")
    assert not guesses.predictions("90")
    assert "You had not written a guess" in str(lab.result)
    assert lab.run(guess="a lot") == 4
    assert lab.result.guess is None


# what is shown


def test_the_figure_holds_the_functions_value_and_the_guess():
    lab = SquareLab()
    lab.run(n=3, guess=7)
    lines = {line.get_label(): list(line.get_ydata()) for line in lab.result.figure.axes[0].lines}
    assert lines == {"square": [0, 9], "your guess": [7, 7]}
    assert "Your guess is drawn in" in lab.result.figure.alt


def test_the_page_has_verdict_table_picture_and_why_and_is_escaped():
    lab = SquareLab()
    lab.verdict = lambda value: "It is <b>nine</b>."
    lab.run(n=3)
    page = lab.result.html()
    assert "It is &lt;b&gt;nine&lt;/b&gt;." in page
    assert '<th scope="col"' in page
    assert '<th scope="row"' in page
    assert '<img alt="Lines' in page
    assert "A number times itself." in page
    assert len(lab.result.html(png=True)) < 40_000


def test_saving_writes_the_card(tmp_path):
    lab = SquareLab()
    with pytest.raises(ValueError, match="press Run first"):
        lab.save(tmp_path)
    lab.run(n=3, guess=7)
    card = json.loads(lab.save(tmp_path / "new").read_text())
    assert card["lab"] == "SquareLab"
    assert card["controls"] == {"n": 3, "scale": 1.0, "count": 5, "name": "BDT"}
    assert (card["guess"], card["unit"], card["result"]) == (7.0, "cm", {"square": 9.0})


def test_both_languages(monkeypatch):
    from labkit import use_language

    use_language("bn")
    lab = SquareLab()
    lab.run(n=3, guess=7)
    assert "কেন?" in lab.result.html()
    assert 'lang="bn"' in lab.result.html()


# the worker


def test_the_worker_gives_the_same_value_and_reports_on_the_way():
    seen = []
    lab = SquareLab(lambda: step("half way", 0.5))
    lab.watch(lambda lab: seen.append((lab.state, lab.said, lab.share)))
    lab.start(n=3)
    assert lab.wait() == "done"
    assert lab.value == 9
    assert ("running", "half way", 0.5) in seen
    step("outside a lab nothing happens")


def test_a_second_start_while_it_runs_starts_nothing():
    gate, calls = threading.Event(), []
    lab = SquareLab(lambda: (calls.append(1), gate.wait(10)))
    lab.start()
    until(lambda: calls)
    lab.start()
    gate.set()
    lab.wait()
    assert calls == [1]


def test_two_labs_never_measure_at_once_and_the_second_says_that_it_waits():
    gate, running, most = threading.Event(), [], []

    def inside():
        running.append(1)
        most.append(len(running))
        gate.wait(10)
        running.pop()

    first, second, third = (SquareLab(inside) for _ in range(3))
    first.start()
    until(lambda: running)
    second.start()
    third.start()
    until(lambda: "SquareLab” is measuring" in second.said)
    third.stop()
    assert third.wait() == "stopped"  # waiting can be stopped as well
    gate.set()
    assert (first.wait(), second.wait()) == ("done", "done")
    assert max(most) == 1
    assert third.value is None


def test_the_headless_way_waits_for_its_turn_too():
    gate, order = threading.Event(), []
    first = SquareLab(lambda: (gate.wait(10), order.append("first")))
    first.start()
    until(lambda: first.state == "running")
    threading.Timer(0.1, gate.set).start()
    SquareLab(lambda: order.append("second")).run()
    first.wait()
    assert order == ["first", "second"]


@pytest.mark.parametrize("stubborn", [False, True])
def test_stop_ends_a_loop_within_two_seconds(stubborn):
    freed = []

    def forever():
        try:
            while True:
                try:
                    sum(range(100))
                except Exception:  # a learner's loop that lets nothing through but what is no Exception
                    if not stubborn:
                        raise
        finally:
            freed.append(1)

    lab = SquareLab(forever)
    lab.start()
    until(lambda: lab.state == "running")
    begin = time.monotonic()
    lab.stop()
    assert lab.wait() == "stopped"
    assert time.monotonic() - begin < 2.0
    assert freed
    lab.inside = lambda: None
    lab.start(n=3)
    assert (lab.wait(), lab.value) == ("done", 9)


@pytest.mark.usefixtures("_quick_patience")
def test_what_cannot_be_interrupted_is_abandoned_and_hands_over():
    gate = threading.Event()
    stuck, next_one = SquareLab(lambda: gate.wait(20)), SquareLab()
    stuck.start(n=4)
    until(lambda: stuck.state == "running")
    stuck.stop()
    assert stuck.wait() == "stopped"
    assert "runs on to its end" in stuck.said
    next_one.start(n=3)
    until(lambda: "could not be interrupted" in next_one.said)
    assert next_one.wait() == "done"
    assert "still used this machine" in next_one.result.notes[0]
    gate.set()
    until(lambda: not stuck._job._runner.is_alive())
    assert stuck.value is None  # its late result is thrown away
    stuck.start(n=3)
    assert (stuck.wait(), stuck.value) == ("done", 9)
    assert not stuck.result.notes


@pytest.mark.usefixtures("_quick_patience")
def test_a_shelter_is_left_whole_and_ends_there():
    gate, done = threading.Event(), []

    def compiling():
        with uninterrupted():
            while not gate.is_set():
                pass
            done.append("compiled")
        done.append("went on")

    lab, next_one = SquareLab(compiling), SquareLab()
    lab.start()
    until(lambda: lab.state == "running")
    lab.stop()
    assert lab.wait() == "stopped"
    next_one.start()
    gate.set()
    assert next_one.wait() == "done"
    assert done == ["compiled"]


def test_the_time_limit_ends_it_and_says_so():
    def forever():
        while True:
            pass

    lab = SquareLab(forever, limit_s=0.2)
    lab.start()
    assert lab.wait() == "late"
    assert "not finished after 0.2 s" in lab.said


# errors


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("boom\nand more"), "RuntimeError: boom."),
        (MemoryError(), "The memory ran out"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "The memory ran out"),
        (ResultsDifferError("b differs from a."), "b differs from a. Change a control"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_an_error_is_told_in_words_and_the_lab_can_be_run_again(error, said):
    def broken():
        raise error

    lab = SquareLab(broken)
    lab.start()
    assert lab.wait() == "failed"
    assert said in lab.said
    assert "Run again" in lab.said
    lab.inside = lambda: None
    lab.start(n=3)
    assert (lab.wait(), lab.value) == ("done", 9)


def test_memory_that_ran_out_inside_a_timed_function_is_recognised():
    from labkit._callables import CallFailedError
    from labkit._lab_errors import explained

    error = CallFailedError("eager failed")
    error.__cause__ = MemoryError()
    assert "memory ran out" in explained(error)


def test_a_value_of_another_kind_fails_in_words_too():
    lab = SquareLab()
    lab.measure = lambda **_controls: "nine"
    lab.start()
    assert lab.wait() == "failed"
    assert "ended with an error" in lab.said


def test_a_cell_that_runs_meanwhile_is_noted(monkeypatch):
    import types

    import IPython

    events = types.SimpleNamespace(callbacks=[])
    events.register = lambda _name, fn: events.callbacks.append(fn)
    events.unregister = lambda _name, fn: events.callbacks.remove(fn)
    monkeypatch.setattr(IPython, "get_ipython", lambda: types.SimpleNamespace(events=events))
    lab = SquareLab(lambda: events.callbacks[0](None))
    lab.start()
    lab.wait()
    assert "A cell ran at the same time" in lab.result.notes[0]
    assert not events.callbacks


# widgets


def test_the_panel_names_every_control_and_reads_what_was_typed():
    from labkit._lab_panel import Panel

    lab = SquareLab()
    panel = Panel(lab)
    fields = [*panel.controls.values(), panel.guess, panel.run, panel.stop, panel.save]
    assert all(field.description for field in fields)
    panel.controls["n"].value = 4
    panel.guess.value = "১৫"
    panel.run.click()
    lab.wait()
    assert lab.value == 16
    assert "You guessed 15 cm" in panel.result.value
    assert 'role="status"' in panel.status.value
    assert "Done. It is 16." in panel.status.value
    assert not panel.run.disabled
    assert not panel.save.disabled


def test_the_panel_tells_what_went_wrong_and_keeps_the_last_result():
    from labkit._lab_panel import Panel

    lab = SquareLab()
    panel = Panel(lab)
    panel.stop.click()
    assert "Nothing is running" in panel.status.value
    panel.run.click()
    lab.wait()
    shown = panel.result.value

    def broken():
        raise RuntimeError("<boom>")

    lab.inside = broken
    panel.run.click()
    lab.wait()
    assert "RuntimeError: &lt;boom&gt;" in panel.status.value
    assert panel.result.value == shown
    assert not panel.run.disabled


def test_a_field_that_refuses_its_value_says_so():
    from labkit._lab_panel import Panel

    panel = Panel(SquareLab())
    panel.controls["name"].value = "  "
    panel.run.click()
    assert "short word" in panel.status.value
    assert panel.lab.state == "ready"


def test_save_keeps_a_copy_in_the_notebook(tmp_path, monkeypatch):
    from labkit._lab_panel import Panel

    monkeypatch.chdir(tmp_path)
    kept = []
    panel = Panel(SquareLab())
    panel.kept = type("Handle", (), {"update": lambda _self, data, raw: kept.append(data)})()
    panel.lab.run(n=3)
    panel.save.click()
    [file] = (tmp_path / "labkit-results").iterdir()
    assert file.name in panel.status.value
    assert "download=" in panel.status.value
    assert "It is 9." in kept[0]["text/html"]


def test_the_saved_run_names_its_machine_and_needs_no_widget():
    from labkit._lab_panel import saved

    lab = SquareLab()
    lab.run(n=3)
    bundle = saved(lab)
    assert set(bundle) == {"text/html", "text/plain"}
    assert "A saved run of" in bundle["text/html"]
    assert "data:image/png" in bundle["text/html"]


# the table of labs


@pytest.mark.parametrize("name", [name for name in widgets.__all__ if name != "Lab"])
def test_every_lab_is_there_and_describes_itself(name):
    lab = getattr(widgets, name)()
    assert lab.title()
    assert lab.key[:2].isdigit()
    assert lab.key[2] == "-"
    names = [control.name for control in lab.controls()]
    assert len(set(names)) == len(names)
    assert set(lab.defaults()) == set(names)
    assert lab.__doc__


def test_another_name_is_none():
    with pytest.raises(AttributeError, match="no attribute 'NoLab'"):
        widgets.NoLab  # noqa: B018
    assert dir(widgets) == sorted({*widgets.__all__, "__doc__"})
