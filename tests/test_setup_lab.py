"""``make lab`` ends in a JupyterLab on loopback, behind its token, also when the usual port is taken and no browser is
there."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from setup_env import pythons

pytestmark = pytest.mark.slow
ADDRESS = re.compile(r"http://(\S+?):(\d+)(/\S+?)\?token=(\w+)")


@contextlib.contextmanager
def lab(home, edition):
    """A running ``open_lab``: what it printed up to its address, and the parts of that address."""
    code = f"from setup_env.__main__ import open_lab; open_lab({edition!r})"
    environment = os.environ | {"HOME": str(home), "BROWSER": "", "PATH": str(home)}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=pythons.ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda: [lines.put(line) for line in process.stdout], daemon=True).start()
        said, found = "", None
        try:
            while not found:
                said += lines.get(timeout=60)
                found = ADDRESS.search(said)
            wait_for(int(found[2]))
            yield said, found.groups()
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def wait_for(port):
    """Jupyter prints its address a moment before it listens there."""
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)


def get(address, token=""):
    request = urllib.request.Request(address, headers={"Authorization": f"token {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


@pytest.fixture
def taken_port():
    """The port that Jupyter tries first is in use, by this or by somebody else."""
    with socket.socket() as taken, contextlib.suppress(OSError):
        taken.bind(("127.0.0.1", 8888))
        taken.listen()
        yield
        return
    yield


@pytest.mark.skipif(not pythons.EXECUTABLE.exists(), reason="there is no .venv: make lab was never run here")
@pytest.mark.parametrize(("edition", "page"), [("", "notebooks/index.ipynb"), ("en", "notebooks/en/")])
def test_lab_opens_on_loopback_behind_its_token(edition, page, tmp_path, taken_port):
    with lab(tmp_path, edition) as (said, (host, port, path, token)):
        assert host in ("127.0.0.1", "localhost")
        assert port != "8888"
        assert path.startswith(f"/lab/tree/{page}")
        assert "JupyterLab খুলছি" in said
        assert "Opening JupyterLab" in said
        address = f"http://127.0.0.1:{port}"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get(f"{address}/api/contents")
        assert "jupyter-config-data" in get(f"{address}{path}", token)
        specs = json.loads(get(f"{address}/api/kernelspecs", token))
        assert specs["default"] == "python3"
        asked = json.loads(get(f"{address}/lab/api/settings/@jupyterlab/apputils-extension:notification", token))
        told = {name: of["default"] for name, of in asked["schema"]["properties"].items()}
        assert (told["fetchNews"], told["checkForUpdates"]) == ("false", False)
        [server] = [line for line in listening() if line.endswith(f":{port}")]
        assert server.startswith(("127.0.0.1:", "[::1]:"))


def listening():
    """``host:port`` of every listening TCP socket, from the system's own table."""
    import psutil

    return [f"{c.laddr.ip}:{c.laddr.port}" for c in psutil.net_connections("tcp4") if c.status == psutil.CONN_LISTEN]
