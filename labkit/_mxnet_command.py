"""``python -m labkit.launch mxnet …``: one machine's part of a parameter server, see ``launch.mxnet``."""

from __future__ import annotations

import argparse
import sys

from labkit import launch
from labkit.language import t


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; the exit code. ``arguments`` without ``mxnet``."""
    options = argparse.ArgumentParser(prog="python -m labkit.launch mxnet", description=launch.mxnet.__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("script")
    options.add_argument("-w", "--workers", type=int, default=2, help="in the whole run")
    options.add_argument("-s", "--servers", type=int, default=1, help="in the whole run")
    options.add_argument("--here", default="", help="the processes of this machine: scheduler,server,worker")
    options.add_argument("--root", default="", help="the scheduler's ADDRESS:PORT")
    options.add_argument("--address", default="", help="this machine's own address")
    options.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS")
    options.add_argument("arguments", nargs=argparse.REMAINDER, help="for the script's sys.argv")
    told = options.parse_args(arguments)
    try:
        results = launch.mxnet(
            told.script, told.workers, told.servers, arguments=told.arguments, timeout_s=told.timeout,
            here=told.here, root=told.root, address=told.address,
        )  # fmt: skip
    except launch.LaunchError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print(t("Stopped. The scheduler, the servers and the workers have been ended."), file=sys.stderr, flush=True)
        return 130
    for index, values in enumerate(results):
        print(t("worker {index} reports {values}", index=index, values=values), flush=True)
    return 0
