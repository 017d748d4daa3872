"""Correctness first: no function is timed against another before their answers agree."""

from __future__ import annotations

import re
from dataclasses import dataclass

from labkit import _agreement, _callables, _rounding
from labkit._leaves import arrays, cloned, overwrite, same_bits, to_numpy
from labkit._training_state import Saved, reach, seeded
from labkit.language import t


class ResultsDifferError(ValueError):
    """Two candidates do not compute the same thing."""


class InputsChangedError(ValueError):
    """A candidate changes its inputs or other state, so that its calls are not alike."""


class DevicesDifferError(ValueError):
    """Two candidates ran on different devices."""


@dataclass(frozen=True)
class _Answer:
    """What one call left to compare, each part as ``{label: (dtype, copy)}``."""

    outputs: dict
    written: dict  # arguments that were changed
    gradients: dict


class Gate:
    """Holds the baseline's answer and lets candidates through that give the same one.

    Every call starts from the same inputs, weights and random numbers. ``open()`` is given a function that starts a
    stopwatch (and thereby makes the first call) and hands the result to ``keep``. Use it in a ``with`` statement: at
    the end, also after an error, weights, gradients and optimisers are as they were.
    """

    def __init__(self, functions: dict, args, *, baseline: str, check=None, tolerance=None):
        self.args, self.baseline, self.check, self.tolerance = args, baseline, check, tolerance
        self.reaches = {name: reach(fn, args) for name, fn in functions.items()}
        self.saved = Saved(self.reaches.values())
        self.inputs = [(path, leaf, to_numpy(leaf)) for path, leaf in arrays(args)]
        self.expected = None  # the baseline's answer
        self.watch = None  # the baseline's, to call it again
        self.rooms = None  # gradient -> how far a right version may be off by rounding, where somebody had to ask
        self.compared = False
        self.device = None  # the baseline's

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_) -> None:
        self.saved.finish()

    def open(self, name: str, start):
        """Make the first call of ``name`` through ``start(keep)`` and compare it; return what ``start`` returned.

        Raises ResultsDifferError, InputsChangedError, DevicesDifferError.
        """
        box: list = []
        self.saved.restore()
        with seeded():
            watch = start(box.append)
        if self.check:
            self._ask(name, box.pop())
        else:
            self._same_device(name, watch)
            answer = self._answer(name, box.pop())
            self.watch = self.watch or watch
            self._same_again(name, watch, answer)
            self._same_as_baseline(name, answer)
        self.saved.restore()
        return watch

    def confirm(self, watches: dict) -> None:
        """Compare once more, after timing; a kernel with a data race may have been right only once."""
        if not self.check:
            for name, watch in watches.items():
                self._same_as_baseline(name, self._called(name, watch))

    def _called(self, name: str, watch) -> _Answer:
        self.saved.restore()
        with seeded():
            return self._answer(name, watch.result())

    def _answer(self, name: str, result) -> _Answer:
        gradients = [(label, x.grad) for label, x in self._trainable(name).items() if x.grad is not None]
        written = {f"args{path}": _agreement.kept(leaf) for path, leaf in self._written()}
        return _Answer(_agreement.answer(result), written, _agreement.answer((), gradients))

    def _trainable(self, name: str) -> dict:
        trainable = self.reaches[name].trainable()
        trainable.update({f"args{path}": leaf for path, leaf in arrays(self.args)
                          if getattr(leaf, "requires_grad", False) and leaf.is_leaf})
        return trainable

    def _difference(self, expected: _Answer, got: _Answer, rooms=None):
        """Outputs, then the arguments that either of the two wrote to, then gradients."""
        before = {f"args{path}": _agreement.kept(value) for path, _, value in self.inputs
                  if f"args{path}" in expected.written | got.written}
        return _agreement.first_difference(
            expected.outputs | before | expected.written | expected.gradients,
            got.outputs | before | got.written | got.gradients,
            gradients=len(expected.gradients), tolerance=self.tolerance, rooms=rooms)

    def _moved_by_rounding(self) -> dict[str, float]:
        """Gradient -> the room that rounding needs, from calls of the baseline with its weights nudged."""
        if self.rooms is None:
            self.rooms = {}
            for seed in range(_rounding.NUDGES):
                self.saved.restore()
                _rounding.nudge(self._trainable(self.baseline).values(), seed)
                with seeded():
                    moved = self._answer(self.baseline, self.watch.result()).gradients
                for label, off in _agreement.furthest(self.expected.gradients, moved).items():
                    self.rooms[label] = max(_rounding.ROOM * off, self.rooms.get(label, 0.0))
            self.saved.restore()
        return self.rooms

    def _written(self):
        """Arguments that no longer hold, bit for bit, what they held at first."""
        return [(path, leaf) for path, leaf, before in self.inputs if not same_bits(to_numpy(leaf, copy=False), before)]

    def _same_again(self, name: str, watch, first: _Answer) -> None:
        """A second call must give the first one's answer, and an argument that was written to must be output only."""
        written = self._written()
        try:
            off = self._difference(first, self._called(name, watch))
            for extreme in (max, min) if written else ():
                if off is None:
                    self._spoil(written, extreme)
                    off = self._difference(first, self._called(name, watch))
        finally:
            for _, leaf, before in self.inputs if written else ():
                overwrite(leaf, before)
        if off and written:
            raise InputsChangedError(
                t("`{name}` changes its input `args{path}` in place, so each call would work on other numbers and the "
                  "times would not be comparable. Nothing was timed. Let it work on its own copy, "
                  "`lambda x: f(x.clone())`, or write the result to a separate, preallocated tensor.",
                  name=name, path=written[0][0]))
        if off:
            raise InputsChangedError(
                t("`{name}` gives another answer when it is called a second time with the same inputs ({where} "
                  "{text}). Nothing was timed. It probably changes a tensor in place outside its arguments, counts "
                  "its calls, or draws random numbers. Make every call start from the same state, or say what may "
                  "differ: `check=lambda a, b: ...`.", name=name, where=off.where, text=off.text))

    def _spoil(self, written, extreme) -> None:
        """Put nonsense where an argument was written to: an output buffer does not mind, an input does.

        NaN for floats; for integers the largest or smallest, since clamping, say, would swallow one of the two.
        """
        import numpy as np

        for path, leaf in written:
            before = next(value for other, _, value in self.inputs if other == path)
            now = to_numpy(leaf)
            if now.dtype.kind in "iu":
                limits = np.iinfo(now.dtype)
                nonsense = np.full_like(now, extreme(limits.min, limits.max))
            else:
                nonsense = ~now if now.dtype.kind == "b" else np.full_like(now, np.nan)
            overwrite(leaf, np.where(now != before, nonsense, now))

    def _same_device(self, name: str, watch) -> None:
        self.device = self.device or watch.device
        if _kind(self.device) != _kind(watch.device):
            raise DevicesDifferError(
                t("`{name}` ran on {device}, `{baseline}` on {other}. Nothing was timed. Put the inputs and the model "
                  "of both on one device: `x = x.to(lab.device())`. To compare devices on purpose, say how to compare "
                  "their results: `check=lambda a, b: torch.allclose(a.cpu(), b.cpu(), atol=1e-3)`.",
                  name=name, device=watch.device, baseline=self.baseline, other=self.device))

    def _same_as_baseline(self, name: str, answer: _Answer) -> None:
        if self.expected is None:
            self.expected = answer
            self.compared = _agreement.comparable(answer.outputs | answer.written | answer.gradients)
        wanted, found = len(self.expected.gradients), len(answer.gradients)
        if wanted != found:
            self._refuse(name, t("the gradients"),
                         t("are {got} in number instead of {expected}", got=found, expected=wanted))
        off = self._difference(self.expected, answer)
        if off and wanted and self.tolerance is None:
            off = self._difference(self.expected, answer, self._moved_by_rounding())
        if off:
            self._refuse(name, off.where, off.text)

    def _ask(self, name: str, result) -> None:
        """The caller's own rule instead of ours."""
        if self.expected is None:
            self.expected = cloned(result)
            self.compared = True
            return
        try:
            agrees = bool(self.check(self.expected, result))
        except Exception as error:
            raise _callables.call_failed("check", error) from error
        if not agrees:
            self._refuse(name, t("the result"), t("does not pass your `check`"))

    def _refuse(self, name: str, where: str, text: str):
        raise ResultsDifferError(
            t("`{name}` and `{baseline}` do not give the same answer: {where} {text}. A fast wrong answer is worth "
              "nothing, so nothing was timed. Look for a forgotten operation, another dtype or an input that differs. "
              "If the difference is expected, allow it: `tolerance=1e-2`, or `check=lambda a, b: ...` with your own "
              "rule.", name=name, baseline=self.baseline, where=where, text=text))


def _kind(device: str) -> str:
    return re.match(r"[a-z]*", device).group().replace("gpu", "cuda")
