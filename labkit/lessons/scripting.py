"""What lesson 04 counts and says: work in a graph, memory in activations, a synthetic voice, refusals, the answer."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from labkit._peak_memory import peak_bytes
from labkit._torch_private import quiet
from labkit.attempts import captured
from labkit.graphs import nodes
from labkit.language import t
from labkit.lessons.fusion import Sentence
from labkit.units import ratio

RATE = 16_000  # samples a second of the synthetic sounds
_STILL = ("prim::Constant", "prim::GetAttr", "prim::ListConstruct", "prim::TupleConstruct", "aten::to_")


def work(scripted) -> dict[str, int]:
    """Node kinds that compute something, with their counts: no constants, attributes, or changes of layout."""
    return {kind: count for kind, count in nodes(scripted).kinds.items() if not kind.startswith(_STILL)}


def inference(model, *inputs) -> Callable[[], torch.Tensor]:
    """``model(*inputs)`` as a function without arguments that keeps nothing for a backward pass."""
    return torch.no_grad()(lambda: model(*inputs))


def peak_activations(fn: Callable[[], torch.Tensor]) -> float:
    """Most memory that one warm call of ``fn`` takes at once, in sizes of its output, to one decimal."""
    for _ in range(3):  # TorchScript watches its first calls and optimises in between
        output = fn()
    return round(peak_bytes(fn, output.device) / output.nbytes, 1)


def onednn_fused(model, *inputs):
    """Trace and freeze ``model`` with oneDNN's graph fusion on, and run it until the fused plan stands.

    Inference on x86 CPUs only; elsewhere the frozen module runs unfused. The switch is put back.
    """
    before = torch.jit.onednn_fusion_enabled()
    torch.jit.enable_onednn_fusion(True)
    try:
        with quiet(), torch.no_grad():
            fused = torch.jit.freeze(torch.jit.trace(model, inputs))
            for _ in range(3):
                fused(*inputs)
    finally:
        torch.jit.enable_onednn_fusion(before)
    return fused


def running_graph(fn: Callable[[], object]):
    """The graph that TorchScript really ran at a call of ``fn``, after all its optimisations."""
    fn()
    return torch.jit.last_executed_optimized_graph()


def synthetic_sounds(seconds: float = 1.0) -> dict[str, torch.Tensor]:
    """Four sounds made by arithmetic, 16 kHz, from -1 to 1: silence, noise, a pure tone, and two vowels in turn.

    The vowels are the source-filter model of speech: overtones of a falling 120 Hz, louder near the formants of an [a]
    and an [i] (Peterson and Barney 1952). No person was recorded.
    """
    n = int(seconds * RATE)
    time_s = torch.arange(n) / RATE
    vowel_a = _vowel(time_s, [(700, 90, 1.0), (1200, 110, 0.6), (2500, 150, 0.3)])
    vowel_i = _vowel(time_s, [(300, 60, 1.0), (2200, 120, 0.5), (3000, 150, 0.3)])
    generator = torch.Generator().manual_seed(0)
    return {
        "silence": torch.zeros(n),
        "noise": 0.1 * torch.randn(n, generator=generator),
        "tone": 0.3 * torch.sin(2 * math.pi * 440 * time_s),
        "vowels": torch.where(time_s * 4 % 1 < 0.5, vowel_a, vowel_i),
    }


def _vowel(time_s: torch.Tensor, formants) -> torch.Tensor:
    """Overtones of a falling pitch under the ``(centre, width, height)`` of formants, four syllables a second."""
    pitch = 120 * (1 - 0.2 * time_s)
    phase = 2 * math.pi * torch.cumsum(pitch, 0) / RATE
    wave = torch.zeros_like(time_s)
    for overtone in range(1, 40):
        heights = [height * torch.exp(-(((overtone * pitch - centre) / width) ** 2))
                   for centre, width, height in formants]
        wave += (sum(heights) + 0.01) / overtone**0.5 * torch.sin(overtone * phase)
    return 0.3 * wave / wave.abs().max() * (0.5 - 0.5 * torch.cos(2 * math.pi * 4 * time_s))


def voiced(detector, sound: torch.Tensor, rate: int = RATE) -> list[bool]:
    """For every 32 ms of ``sound``: does the detector give speech more than even odds?"""
    detector.reset_states()
    size = 512 * rate // RATE
    whole = sound[: len(sound) // size * size]
    with torch.no_grad():
        return [bool(detector(chunk[None], rate) > 0.5) for chunk in whole.split(size)]


def export_refuses(module: torch.nn.Module, *inputs) -> bool:
    """Whether ``torch.export`` refuses ``module`` with an error; what it writes to the log is caught."""
    with captured(), quiet():
        try:
            torch.export.export(module, inputs)
        except Exception:  # its class depends on the version of torch
            return True
    return False


def answer(cases: dict) -> Sentence:
    """What "2-3x faster" training became here: ``cases`` maps a name to ``(comparison, candidate)``."""
    ratios = {name: comparison.ratio(candidate).value for name, (comparison, candidate) in cases.items()}
    return Sentence(t(
        'The claim says "2-3x faster" training. Scripting the model gave here: {shown}. Twice as fast or more: {above} '
        "of {count} models.", shown="; ".join(f"{name} {ratio(value)}" for name, value in ratios.items()),
        above=sum(value >= 2 for value in ratios.values()), count=len(ratios)))
