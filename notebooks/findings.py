"""README's "what did it find": three lines a language, made from the cards of three labs that were really run.

    python notebooks/findings.py              write the lines from data/measurements/findings.json
    python notebooks/findings.py --check      change nothing; exit 1 when README differs
    python notebooks/findings.py --measure    run the three labs here first (minutes), and keep their cards there
"""

from __future__ import annotations

import argparse
import json
import sys
import types
from pathlib import Path

from labkit import units
from labkit._statistics import Ratio
from labkit._verdict_view import sentence
from labkit.language import speaking

ROOT = Path(__file__).resolve().parent.parent
CARDS = ROOT / "data/measurements/findings.json"
START, END = "<!-- findings:{language}:start -->", "<!-- findings:{language}:end -->"
RUNS = {
    "FusionLab": {"length": 5, "n": 2**24, "budget_s": 10.0},
    "CompileLab": {"family": "conv_silu", "task": "training", "budget_s": 20.0},
    "DataParallelLab": {"width": 512, "batch": 2048, "rounds": 15},
}
TEXTS = {
    "bn": (
        "একবার চালিয়ে যা পাওয়া গেছে ({machine}; PyTorch {torch}; {date})। আপনার মেশিনে অন্য কিছু পেতে পারেন:",
        "**কার্নেল ফিউশন**, {size}-এর একটি টেনসরে পরপর পাঁচটি অপারেশন: {fusion}",
        "**`torch.compile`**, কনভোলিউশনের নেটওয়ার্ক `conv_silu`-এর একটি ট্রেনিং ধাপ: {compiled}",
        "**ডেটা প্যারালেলিজম**, প্রতি র‍্যাঙ্কে সমান ব্যাচ: {ranks}",
    ),
    "en": (
        "What one run found ({machine}; PyTorch {torch}; {date}). Your machine may say otherwise:",
        "**Kernel fusion**, five operations in a row on a tensor of {size}: {fusion}",
        "**`torch.compile`**, a training step of the convolutional network `conv_silu`: {compiled}",
        "**Data parallelism**, the same batch on each rank: {ranks}",
    ),
}


def measure() -> dict:
    """Lab -> its controls and its card, from runs here and now."""
    from labkit import hardware

    done = {name: run(name, controls) for name, controls in RUNS.items()}
    return {"machine": hardware.provenance(), "runs": {name: controls for name, (controls, _card) in done.items()},
            "cards": {name: card for name, (_controls, card) in done.items()}}


def run(name: str, controls: dict) -> tuple[dict, dict]:
    """Run one lab; returns all its controls, for a default may change or differ on a GPU, and its card."""
    from labkit import widgets

    print(name, controls, flush=True)
    lab = getattr(widgets, name)()
    card = lab.card(lab.run(**controls))
    return lab.result.card()["controls"], card


def lines(found: dict, language: str) -> str:
    """Three lines of Markdown, and the one that says where they come from."""
    from labkit._fusion_lab import shown

    cards, where = found["cards"], found["machine"]
    fusion, compiled, ranks = (cards[name] for name in RUNS)
    ratios = fusion["comparison"]["ratios"]
    best = max((name for name in ratios if name != "copy"), key=lambda name: ratios[name][0])
    with speaking(language):
        values = {
            "machine": f"{where.get('gpus', [where['cpu']])[0]}, {where['cpus']} CPU", "torch": where["torch"],
            "date": where["utc"][:10], "size": units.size(4 * fusion["n"]),
            "fusion": _said(fusion["comparison"], best).replace(best, shown(best), 1),
            "compiled": _said(compiled["comparison"], compiled["way"]), "ranks": _scaling(ranks),
        }  # fmt: skip
    head, *three = (text.format(**values) for text in TEXTS[language])
    return "\n".join([head, "", *(f"- {line}" for line in three)])


def _said(card: dict, name: str) -> str:
    """The verdict of a comparison's card, in the words that a notebook uses."""
    view = types.SimpleNamespace(baseline=card["baseline"], ratio=lambda name: Ratio(*card["ratios"][name]),
                                 verdict=lambda name: card["verdicts"][name])  # fmt: skip
    return sentence(view, name)


def _scaling(card: dict) -> str:
    from labkit.lessons.ddp_scaling import Scaling

    speed = types.SimpleNamespace(ratio=lambda name: Ratio(*card["speed"]["ratios"][name]))
    return str(Scaling(card["ranks"], speed, card["step_s"], card["gradient_bytes"]).sentence())


def written(readme: str, found: dict) -> str:
    """README with the lines in their places."""
    for language in TEXTS:
        start, end = START.format(language=language), END.format(language=language)
        before, rest = readme.split(start)
        readme = f"{before}{start}\n{lines(found, language)}\n{end}{rest.split(end)[1]}"
    return readme


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--measure", action="store_true")
    options = parser.parse_args(arguments)
    if options.measure:
        CARDS.write_text(json.dumps(measure(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path = ROOT / "README.md"
    old = path.read_text(encoding="utf-8")
    new = written(old, json.loads(CARDS.read_text(encoding="utf-8")))
    if options.check:
        if new != old:
            print("README.md does not say what data/measurements/findings.json holds: python notebooks/findings.py")
        return int(new != old)
    path.write_text(new, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
