"""Keep the state of the widgets that a notebook shows, small and with names that do not change from run to run."""

from __future__ import annotations

import json
import re

import nbformat

STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"
REFERENCE = re.compile(r"IPY_MODEL_([0-9a-f]+)")


def settle(notebook: nbformat.NotebookNode) -> None:
    """Drop the models that no view needs, then name the rest by order of creation instead of by random ids."""
    saved = notebook.metadata["widgets"][STATE]
    views = [o["data"][VIEW] for c in notebook.cells for o in c.get("outputs", []) if VIEW in o.get("data", {})]
    needed = _reachable(saved["state"], {view["model_id"] for view in views})
    names = {old: f"{index:032x}" for index, old in enumerate((m for m in saved["state"] if m in needed), 1)}
    if not names:
        del notebook.metadata["widgets"]
        return
    state = {old: _slim(model) for old, model in saved["state"].items() if old in needed}
    pattern = re.compile("|".join(names))
    renamed = pattern.sub(lambda found: names[found.group(0)], json.dumps(saved | {"state": state}))
    notebook.metadata["widgets"] = nbformat.from_dict({STATE: json.loads(renamed)})
    for view in views:
        view["model_id"] = names.get(view["model_id"], view["model_id"])


def _reachable(state: dict, start: set[str]) -> set[str]:
    needed, todo = set(), [model for model in start if model in state]
    while todo:
        model = todo.pop()
        if model not in needed:
            needed.add(model)
            todo += [name for name in REFERENCE.findall(json.dumps(state[model])) if name in state]
    return needed


def _slim(model: dict) -> dict:
    """A layout or a style without its unset fields: they are most of a lab's state and say nothing."""
    if not model["model_name"].endswith(("LayoutModel", "StyleModel")):
        return model
    return dict(model) | {"state": {key: value for key, value in model["state"].items() if value is not None}}
