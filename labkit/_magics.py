"""The cell magics ``%%torchrun`` and ``%%mxnet_ps``: read the first line, make the cell a script, launch it, give its
values to the notebook."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path

from labkit import _cell_script, _run_files, launch
from labkit._launch_errors import BadLaunchError
from labkit.language import t


class _Options(argparse.ArgumentParser):
    def error(self, message):
        raise BadLaunchError(
            t("The first line was not understood: {problem}\nIt is written like this: {usage}",
              problem=message, usage=self.usage)
        )


_COMMON = "[--timeout 120] [--save {file}] [--expect-fail] [--into results] [--set name] [--args …]"


def _options(usage: str, file: str) -> _Options:
    """What the first lines of all magics have in common; ``file`` is an example of a name to save under."""
    options = _Options(add_help=False, allow_abbrev=False, usage=f"{usage} {_COMMON.format(file=file)}")
    options.add_argument("--timeout", type=float, default=120.0)
    options.add_argument("--save", type=Path)
    options.add_argument("--expect-fail", action="store_true")
    options.add_argument("--into")
    options.add_argument("--set", action="append", default=[])
    options.add_argument("--threads", type=int)
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--args", nargs=argparse.REMAINDER, default=[])
    return options


def torchrun(line: str, cell: str, namespace: dict):
    """Run this cell as N ranks of torch.distributed.

    %%torchrun -n 2                 two ranks (the default)
    --timeout 120                   end them after so many seconds
    --save ddp.py                   keep the cell as a file, which plain torchrun runs too
    --into results                  the ranks' reports, one dict a rank, in this variable (otherwise shown, and in _)
    --set lr --set steps=20         hand values to the ranks, which read them with lab.launch.value("lr")
    --expect-fail                   the cell is meant to fail: show how, and go on
    --threads 1                     threads of each rank (otherwise the cores are shared out)
    --max-restarts 3                start all ranks again when one fails, at most so often
    --port 29500                    a port of your choice (otherwise a free one)
    --args …                        everything behind it reaches the script's sys.argv
    """
    options = _options("%%torchrun -n 2", "ddp.py")
    options.add_argument("-n", "--nproc", type=int, default=2)
    options.add_argument("--max-restarts", type=int, default=0)
    told = options.parse_args(_words(line))

    def run(path, **common):
        return launch.torchrun(path, told.nproc, max_restarts=told.max_restarts, **common)

    return _launched(told, f"torchrun --nproc-per-node {told.nproc}", cell, namespace, run)


def mxnet_ps(line: str, cell: str, namespace: dict):
    """Run this cell as the workers of MXNet's parameter server, beside a scheduler and servers.

    %%mxnet_ps -w 2 -s 1            two workers, one server (the default)
    --timeout 120                   end all processes after so many seconds
    --save train.py                 keep the cell as a file, which lab.launch.mxnet("train.py") runs too
    --into results                  the workers' reports, one dict each, in this variable (otherwise shown, and in _)
    --set lr --set steps=20         hand values to the workers, which read them with lab.launch.value("lr")
    --expect-fail                   the cell is meant to fail: show how, and go on
    --threads 1                     threads of each worker (otherwise the cores are shared out)
    --port 9091                     the scheduler's port (otherwise a free one)
    --args …                        everything behind it reaches the script's sys.argv
    """
    options = _options("%%mxnet_ps -w 2 -s 1", "train.py")
    options.add_argument("-w", "--workers", type=int, default=2)
    options.add_argument("-s", "--servers", type=int, default=1)
    told = options.parse_args(_words(line))

    def run(path, **common):
        return launch.mxnet(path, told.workers, told.servers, **common)

    command = f"python -m labkit.launch mxnet -w {told.workers} -s {told.servers}"
    return _launched(told, command, cell, namespace, run)


def _launched(told: argparse.Namespace, command: str, cell: str, namespace: dict, run: Callable):
    """Check the cell, write it to its file, run that, and put what came back where the first line says."""
    command = f"{command} {told.save or 'cell.py'}"
    source = f"# {command}\n{cell}"
    tree = _cell_script.check_source(source)
    _cell_script.check_names(source, tree, namespace)
    values = dict(_handed_over(request, namespace) for request in told.set)
    with _run_files.temporary() as folder:
        path = told.save or folder / "cell.py"
        _cell_script.write_cell(cell, path, command)
        results = run(
            path,
            arguments=told.args,
            values=values,
            timeout_s=told.timeout,
            expect_fail=told.expect_fail,
            threads=told.threads,
            port=told.port,
            import_from=None if told.save else Path.cwd(),
            folder=folder,
        )
    if told.into:
        namespace[told.into] = results
        return None
    return results if any(results) else None


# Name of a magic -> the function behind it.
CELL_MAGICS = {"torchrun": torchrun, "mxnet_ps": mxnet_ps}


def register(shell) -> None:
    for name, function in CELL_MAGICS.items():
        shell.register_magic_function(_bound(function, shell), "cell", name)
    if not any(getattr(step, "of_labkit", False) for step in shell.input_transformers_cleanup):
        shell.input_transformers_cleanup.insert(0, _keep_empty_cells)


def _bound(function, shell):
    def magic(line, cell):
        try:
            return function(line, cell, shell.user_ns)
        except KeyboardInterrupt as stop:
            # A few words instead of the traceback through the launcher.
            stop._render_traceback_ = lambda: [_stopped(function)]
            raise

    magic.__doc__ = function.__doc__
    return magic


def _stopped(function: Callable) -> str:
    if function is mxnet_ps:
        return t("Stopped. The scheduler, the servers and the workers have been ended.")
    return t("Stopped. Every rank has been ended.")


def _keep_empty_cells(lines: list[str]) -> list[str]:
    """IPython refuses a cell magic without a body in its own English words, before the magic can speak; a blank line
    is body enough to get through."""
    if len(lines) == 1 and lines[0].startswith(tuple(f"%%{name}" for name in CELL_MAGICS)):
        return [lines[0].rstrip("\n") + "\n", "\n"]
    return lines


_keep_empty_cells.of_labkit = True


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise BadLaunchError(t("The first line was not understood: {problem}", problem=error)) from None


def _handed_over(request: str, namespace: dict) -> tuple[str, object]:
    """``name`` or ``name=expression``, the expression in the notebook's variables."""
    name, equals, expression = request.partition("=")
    if not name.isidentifier():
        raise BadLaunchError(t("--set needs a name, or name=value: {request} is neither.", request=request))
    try:
        return name, eval(expression if equals else name, namespace)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise BadLaunchError(
            t("--set {request} could not be evaluated in the notebook: {problem}\nText needs quotes inside quotes:"
              " --set \"name='text'\"", request=request, problem=problem)
        ) from None
