"""One training of the project, in a process of its own: pairs, seed and source go in, the weights come out.

``python -m labkit._project_run`` says ``ready`` when everything is imported, reads a job (a line of JSON), trains, and
answers with a line of JSON. Whoever asked holds the watch, evaluates the weights and never runs this code: what the
function does to clocks, to torch or to labkit stays in that process and ends with it.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import sys

LONGEST_ERROR = 500
ANSWERED = 17  # how a copy ends that has given its answer; not 0, which a function may end it with


def training(job: dict) -> dict:
    """``weights`` (name -> shape, base64 of float32), or ``error``. ``operators`` when the job says ``count``.

    ``job``: source and name of the function (None for the naive training), train and val (lists of two words), seed,
    epochs (of the naive training), threads.
    """
    import torch

    torch.set_num_threads(job["threads"])
    try:
        train = _function(job)
        names = _names(job)
        if not job.get("count"):
            return {"weights": packed(train(names, job["seed"]))}
        with _counting() as calls:
            model = train(names, job["seed"])
        return {"weights": packed(model), "operators": calls[0]}
    except BaseException as error:  # also SystemExit, and what torch raises on its own
        return {"error": f"{type(error).__name__}: {error}"[:LONGEST_ERROR]}


@contextlib.contextmanager
def _counting():
    """[how many operators torch was asked for so far], forward, backward and optimiser; a compiled part counts as if
    it were not compiled."""
    from torch.utils._python_dispatch import TorchDispatchMode

    calls = [0]

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            calls[0] += 1
            return operator(*args, **(kwargs or {}))

    with Count():
        yield calls


def _function(job: dict):
    if job["source"] is None:
        from labkit.transliteration import train_naive

        return lambda names, seed: train_naive(names, seed=seed, epochs=job["epochs"])
    from labkit import _handed_in

    return _handed_in.load(job["source"], job["name"])


def _names(job: dict):
    from labkit.datasets import Split
    from labkit.transliteration import Pair

    return Split([Pair(*pair) for pair in job["train"]], [Pair(*pair) for pair in job["val"]], [])


def packed(model) -> dict:
    """Weights as JSON values. Only they count: what a model does with them is decided by whoever evaluates it.

    Raises TypeError for something without weights, such as None.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"train() must return the model, not {type(model).__name__}")
    weights = {}
    for name, tensor in model.state_dict().items():
        flat = tensor.detach().to("cpu", torch.float32).contiguous()
        name = name.removeprefix("_orig_mod.")  # torch.compile's wrapper
        weights[name] = [list(flat.shape), base64.b64encode(flat.numpy().tobytes()).decode()]
    return weights


def unpacked(weights: dict):
    """A fresh Transliterator with these weights. Raises ValueError when they are not those of one, or not finite."""
    import numpy as np
    import torch

    from labkit.transliteration import Transliterator

    model = Transliterator()
    try:
        model.load_state_dict({
            name: torch.from_numpy(np.frombuffer(base64.b64decode(text), np.float32).reshape(shape).copy())
            for name, (shape, text) in weights.items()})
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error
    if not all(tensor.isfinite().all() for tensor in model.state_dict().values()):
        raise ValueError("weights that are not finite")
    return model.eval()


def main() -> int:
    from labkit import _guard

    _guard.end_with(os.getppid())
    importlib.import_module("torch._dynamo")  # importing is nobody's training time
    importlib.import_module("labkit.transliteration")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the function prints goes nowhere
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        if sys.platform != "linux":
            print(json.dumps(training(json.loads(line))), file=answers, flush=True)
            return 0
        child = os.fork()
        if child == 0:
            print(json.dumps(training(json.loads(line))), file=answers, flush=True)
            os._exit(ANSWERED)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != ANSWERED:
            print("{}", file=answers, flush=True)  # whoever asked says it in their language
        print("ready", file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
