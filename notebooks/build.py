"""Build the two editions of every lesson: ``notebooks/src/NN_topic.md`` -> ``notebooks/{bn,en}/NN_topic.ipynb``.

    python notebooks/build.py                 build every lesson: lint, run, write with outputs; also the lesson index
    python notebooks/build.py 03 05           only these lessons
    python notebooks/build.py 03 --lang bn    only one edition
    python notebooks/build.py 03 --lint       check the source; write nothing (a second or so: use it while writing)
    python notebooks/build.py --no-execute    write without running: no outputs, byte for byte the same every time
    python notebooks/build.py --check         write nothing; exit 1 when a committed edition is not what its source
                                              says (outputs aside), or was not run, or shows an error
    python notebooks/build.py 03 --text       after a change of the text alone: new text, the committed outputs kept;
                                              refused when any code cell differs
    python notebooks/build.py --index         write only the lesson index, README's table and the printable sheets
    python notebooks/build.py --solved DIR    write DIR/{bn,en} with solutions and hidden tests (never committed);
                                              add --no-execute for nbgrader's source versions
    python notebooks/build.py --jobs 2        run two notebooks at once (default 1: timings disturb each other)

Nothing is registered anywhere: a lesson is ``src/NN_topic.md`` and ``labkit/lessons/lNN.py``. The lesson index
``notebooks/index.ipynb`` (text only, both languages; JupyterLab opens it rendered) and the table between
``<!-- lessons:start -->`` and ``<!-- lessons:end -->`` in README.md are written from the sources' front matter.

A complete source (MyST Markdown, read by jupytext)::

    ---
    title:
      bn: কার্নেল ফিউশন
      en: Kernel fusion
    objective:
      bn: এই ল্যাব শেষে আপনি বলতে পারবেন, আপনার মডেলে ফিউশনে লাভ হবে কি না।
      en: By the end you can tell whether fusion is worth trying on your model.
    needs:
      bn: দুই কোরের ল্যাপটপ; GPU লাগবে না
      en: a laptop with two cores; no GPU
    minutes: 40
    status: ready
    ---

    +++ {"lang": "bn"}

    ভূমিকা: প্রথমে `f` চালাই।

    +++ {"lang": "en"}

    Opening: first we run `f`.

    ```{code-cell}
    def f(x):
        return 2 * x

    f(21)
    ```

    +++ {"lang": "bn"}

    ## অনুশীলনী ৩.১

    `double(x)` পূরণ করুন।

    +++ {"lang": "en"}

    ## Exercise 3.1

    Complete `double(x)`.

    ```{code-cell}
    ---
    nbgrader: {grade_id: ex-03-1}
    ---
    def double(x):
        ### BEGIN SOLUTION
        return 2 * x
        ### END SOLUTION
    ```

    ```{code-cell}
    ---
    nbgrader: {grade_id: test-03-1, points: 5}
    ---
    result = lab.check("03-1", double)
    ### BEGIN HIDDEN TESTS
    assert double(4) == 8
    ### END HIDDEN TESTS
    result.points
    ```

    ```{code-cell}
    :tags: [nbval-ignore-output]

    lab.measure(f, 21)
    ```

- Front matter: ``status`` is ``ready``, ``draft`` or ``planned`` (front matter alone: listed, not built). The header
  cell (title, objective, time, needs, other edition, Colab) is generated from it, so a source has no ``#`` heading:
  start at ``##``.
- **Text** stands in pairs, Bengali first, each below its own ``+++ {"lang": …}``. A tag ends at the next code cell:
  tag the text after it again. The first pair is the opening; the generated set-up cell (which imports labkit as
  ``lab``) comes right after it.
- **Code** is shared: no Bengali letters, 20 lines at most.
- **Exercises**: ``ex-NN-k`` fills in the rest of nbgrader's schema 3 as a solution cell, ``test-NN-k`` as a test cell
  with ``points``. Solution regions stand inside a function (the stub is ``return None  # your code here``); a test cell
  ends with its points, ``….points``, because nbgrader reads a last number as the marks.
- A pair must agree in headings, code spans, links, formulas and numbers (Bengali digits count as digits). A term of
  ``glossary.csv`` that the Bengali says in other words for a good reason: ``+++ {"lang": "bn", "free": ["batch"]}``.
- No measured number in the prose. A claim that others make is quoted ("2-3x faster"); a data-sheet number has a link
  to its source in the same paragraph.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from builder import committed, editions, execute, index, lint, source
from builder.source import LANGUAGES, Lesson, Problem, RefusedError

ROOT = Path(__file__).resolve().parent.parent


def lessons(root: Path, wanted: list[str]) -> list[Lesson]:
    """Every wanted source, read and linted. Raises RefusedError with all problems of all sources."""
    paths = sorted((root / "notebooks/src").glob("*.md"))
    unknown = [w for w in wanted if not any(p.stem == w or p.stem.startswith(f"{w}_") for p in paths)]
    if unknown:
        raise RefusedError([Problem("notebooks/src", 0, w, "no such lesson.", "give its two digits.") for w in unknown])
    found: list[Lesson] = []
    problems: list[Problem] = []
    for before, path in pairwise(paths):
        if before.stem[:2] == path.stem[:2]:
            shown = path.relative_to(root).as_posix()
            problems.append(Problem(shown, 0, "file name", f"{path.stem[:2]} stands twice.", "take a free number."))
    for path in paths:
        if wanted and not any(path.stem == w or path.stem.startswith(f"{w}_") for w in wanted):
            continue
        try:
            lesson = source.read(path, path.relative_to(root).as_posix())
        except RefusedError as refused:
            problems += refused.problems
            continue
        problems += lint.problems(lesson, root / "notebooks/src/glossary.csv")
        found.append(lesson)
    if problems:
        raise RefusedError(problems)
    return found


def write(root: Path, lesson: Lesson, language: str, *, folder: Path, solved: bool, run: bool) -> str:
    """Write one edition below ``folder`` and return a line about it. Raises RefusedError."""
    notebook = editions.edition(lesson, language, editions.repository(root), solved=solved)
    path = folder / language / f"{lesson.name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    if run:
        # Always in the edition's own folder: a solved copy elsewhere must see the same neighbours.
        here = root / "notebooks" / language
        here.mkdir(parents=True, exist_ok=True)
        execute.execute(notebook, here, shown, save_runs=not solved)
    text = editions.dumps(notebook)
    if run and (problems := execute.inspect(notebook, shown, len(text.encode()))):
        raise RefusedError(problems)
    path.write_text(text, encoding="utf-8", newline="\n")
    return f"{shown}  {len(text.encode()) // 1000} kB"


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lessons", nargs="*", metavar="NN")
    parser.add_argument("--lang", choices=LANGUAGES)
    parser.add_argument("--lint", action="store_true")
    parser.add_argument("--no-execute", action="store_true")
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--index", action="store_true")
    parser.add_argument("--solved", type=Path, metavar="DIR")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    languages = [options.lang] if options.lang else list(LANGUAGES)
    try:
        if options.index:
            index.write(root)
            return 0
        found = lessons(root, options.lessons)
        if options.check:
            if problems := committed.differences(root, found, languages, whole=not options.lessons):
                raise RefusedError(problems)
        elif options.text:
            for lesson in found:
                for language in languages if lesson.status != "planned" else ():
                    print(committed.retold(root, lesson, language), flush=True)
            index.write(root)
        elif not options.lint:
            _write_all(root, found, languages, options)
    except RefusedError as refused:
        print(refused, file=sys.stderr)
        print(f"\n{len(refused.problems)} problem(s).", file=sys.stderr)
        return 1
    return 0


def _write_all(root: Path, found: list[Lesson], languages: list[str], options: argparse.Namespace) -> None:
    folder = options.solved or root / "notebooks"
    work = [(lesson, language) for lesson in found if lesson.status != "planned" for language in languages]

    def one(item: tuple[Lesson, str]) -> list[Problem]:
        run = not options.no_execute
        try:
            print(write(root, *item, folder=folder, solved=bool(options.solved), run=run), flush=True)
        except RefusedError as refused:
            return refused.problems
        return []

    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        problems = [problem for found_problems in pool.map(one, work) for problem in found_problems]
    if not options.solved:
        index.write(root)
    if problems:
        raise RefusedError(problems)


if __name__ == "__main__":
    sys.exit(main())
