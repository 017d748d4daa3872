"""Notice code that tampers with its marker: the clock, the checks, labkit's functions, the caller's variables.

Learner and check share one process, so this is a tripwire and not a wall. It compares labkit, the clock and the
built-ins before and after, and listens to what Python announces when code looks at frames, the garbage collector or
raw memory. A determined expert gets past it; what a class passes around does not.
"""

from __future__ import annotations

import sys
import types

_FILES_THAT_SERVE = ("inspect.py", "ctypes/__init__.py")  # they look at frames and memory for whoever called them
_EVENTS = {
    "sys._getframe", "sys._current_frames", "sys._current_exceptions", "sys.settrace", "sys.setprofile",
    "sys.addaudithook", "gc.get_objects", "gc.get_referrers", "gc.get_referents",
}  # fmt: skip
_ATTRIBUTES = {"tb_frame", "gi_frame", "cr_frame", "ag_frame", "__code__", "__closure__", "__globals__"}
_PLAIN = (str, int, float, bytes, bool, tuple, type(None), frozenset)
_CODE = (types.FunctionType, types.BuiltinFunctionType, type)
_WATCHED = ("builtins", "time", "random", "math", "statistics", "operator", "signal", "json", "numpy", "torch")


class Tripwire:
    """Take the picture first, then run the code, then ask ``changed()``; ``heard`` collects what was announced."""

    def __init__(self):
        self.heard: list[str] = []
        self.listening = False
        self._before = _picture()
        sys.addaudithook(self._hear)  # cannot be taken off again: one process, one exercise

    def changed(self) -> list[str]:
        """Names whose object is another one than before."""
        now = _picture()
        names = [name for name, thing in self._before.items() if now.get(name, thing) != thing or name not in now]
        return names + [f"labkit.{name}" for name in _false_names()]

    def _hear(self, event: str, arguments) -> None:
        if not self.listening:
            return
        if event in _EVENTS or event.startswith("ctypes."):
            what = event
        elif event in ("object.__getattr__", "object.__setattr__") and arguments[1] in _ATTRIBUTES:
            what = f"{arguments[1]}"
        else:
            return
        self.listening = False
        try:
            if _by_learner(sys._getframe(1)) and what not in self.heard and len(self.heard) < 20:
                self.heard.append(what)
        finally:
            self.listening = True


def _by_learner(frame) -> bool:
    """Whether code that stands in no file asked for it, itself or through a module that looks for others."""
    while frame is not None and frame.f_code.co_filename.endswith(_FILES_THAT_SERVE):
        frame = frame.f_back
    name = frame.f_code.co_filename if frame is not None else ""
    return name.startswith("<") and not name.startswith("<frozen")


def _picture() -> dict[str, object]:
    """Name -> what must stay the same: identity of an object, code of a function, content of a class."""
    seen: dict[str, object] = {}
    for name, module in list(sys.modules.items()):
        ours = name.split(".")[0] == "labkit" and not name.startswith("labkit._classroom")
        if module is None or not (ours or name in _WATCHED):
            continue
        for attribute, value in list(vars(module).items()):
            if isinstance(value, _CODE) or (ours and isinstance(value, _PLAIN)):
                seen[f"{name}.{attribute}"] = id(value)
            if ours and isinstance(value, _CODE):
                seen |= _inside(f"{name}.{attribute}", value)
            elif ours and type(value).__name__ == "Exercise":
                seen[f"{name}.{attribute}()"] = tuple(map(id, vars(value).values()))
    return seen


def _inside(name: str, value) -> dict[str, object]:
    if isinstance(value, types.FunctionType):
        return {f"{name}()": (id(value.__code__), id(value.__defaults__), id(value.__kwdefaults__))}
    if isinstance(value, type) and value.__module__.startswith("labkit"):
        members = {key: member for key, member in vars(value).items() if not key.startswith("__") or callable(member)}
        found: dict[str, object] = {f"{name}.*": tuple(sorted(members))}
        for key, member in members.items():
            found[f"{name}.{key}"] = id(member)
            inner = member.fget if isinstance(member, property) else member
            if isinstance(inner, types.FunctionType):
                found[f"{name}.{key}()"] = id(inner.__code__)
        return found
    return {}


def _false_names() -> list[str]:
    """Public names of labkit that are not what their module holds. They appear on first use: none was there before."""
    import labkit

    homes = {name: sys.modules.get(f"labkit.{home}") for name, home in labkit._HOMES.items()}
    return [name for name, home in homes.items()
            if name in vars(labkit) and home is not None and vars(labkit)[name] is not getattr(home, name, None)]
