"""What lesson 10 shows of its trainings: a table of costs and accuracies, and the lesson's answers to the claims."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labkit._graph_values import html_table
from labkit.language import t
from labkit.lessons.finetuning import Outcome
from labkit.lessons.scaling import Run
from labkit.units import seconds, significant, size


@dataclass(frozen=True)
class Outcomes:
    """Several ways of training beside each other."""

    found: Sequence[Outcome]

    def _table(self):
        heads = (t("way"), t("numbers trained"), t("optimizer states"), t("training time"), t("right, unseen"),
                 t("right, known"))  # fmt: skip
        rows = [(one.name, f"{one.trainable:,}", size(one.optimizer_bytes), seconds(one.seconds),
                 percent(one.accuracy), percent(one.known)) for one in self.found]  # fmt: skip
        return heads, rows

    def __str__(self):
        heads, rows = self._table()
        return "\n".join("  ".join(f"{cell:18s}" for cell in row).rstrip() for row in (heads, *rows))

    __repr__ = __str__

    def _repr_html_(self):
        return html_table(*self._table())


def percent(share: float) -> str:
    return f"{significant(100 * share, 3)}%"


@dataclass(frozen=True)
class Answers:
    """This lesson's part of the claims, answered from the learner's own runs.

    ``by_size`` and ``by_data`` are runs on the digits, ``names`` on the place names, from small to large; ``outcomes``
    maps a way of training to its Outcome; ``letter_errors`` are the character error rates of the table and the model.
    """

    by_size: Sequence[Run]
    by_data: Sequence[Run]
    names: Sequence[Run]
    outcomes: Mapping[str, Outcome]
    letter_errors: tuple[float, float]

    def sentences(self) -> list[str]:
        small, middle, large = self.by_size[0], self.by_size[len(self.by_size) // 2 - 1], self.by_size[-1]
        few, many = self.by_data[0], self.by_data[-1]
        best = min(self.names, key=lambda one: one.error)
        table, model = self.letter_errors
        return [
            t('"Data size decides quality": with {few} examples {worse} were wrong, with {many} {better}. The last '
              "doubling or so brought {last} points.", few=f"{few.examples:,}", many=f"{many.examples:,}",
              worse=percent(few.error), better=percent(many.error), last=self._points(*self.by_data[-2:])),
            t('"Bigger models are more accurate": digits: from {small} to {middle} parameters the wrong answers fell '
              "from {a} to {b}, from there to {large} only to {c}. Place names: the best had {best} parameters, the "
              "largest {largest}, and the largest was {gap} points worse.", small=f"{small.parameters:,}",
              middle=f"{middle.parameters:,}", large=f"{large.parameters:,}", a=percent(small.error),
              b=percent(middle.error), c=percent(large.error), best=f"{best.parameters:,}",
              largest=f"{self.names[-1].parameters:,}", gap=self._points(self.names[-1], best)),
            t('"Fine-tuning reuses a large model at less cost": right on unseen messages, and numbers trained: {ways}.',
              ways="; ".join(f"{name} {percent(one.accuracy)}, {one.trainable:,}"
                             for name, one in self.outcomes.items())),
            t('"Large models make new applications possible": this lesson\'s transliteration is small and ran here: '
              "{model} of the letters wrong, {table} by a table without training. What the larger ones need, the map "
              "above says.", model=percent(model), table=percent(table)),
        ]  # fmt: skip

    @staticmethod
    def _points(before: Run, after: Run) -> str:
        return significant(100 * (before.error - after.error), 2)

    def __repr__(self):
        return "\n".join(self.sentences())

    def _repr_html_(self):
        return "<ul>" + "".join(f"<li>{html.escape(line, quote=False)}</li>" for line in self.sentences()) + "</ul>"
