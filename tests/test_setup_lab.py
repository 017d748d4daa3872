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
    """A running ``open_lab``: what it printed up to its address, the parts of that address, and lines printed later."""
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
            yield said, found.groups(), lines
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def wait_for(port):
    """Jupyter prints its address a moment before it listens there."""
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)


def get(address, token="", method="GET"):
    headers = {"Authorization": f"token {token}"} if token else {}
    request = urllib.request.Request(address, headers=headers, method=method)
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
    with lab(tmp_path, edition) as (said, (host, port, path, token), _):
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


@pytest.mark.skipif(not pythons.EXECUTABLE.exists(), reason="there is no .venv: make lab was never run here")
def test_nobody_else_can_listen_to_a_kernel(tmp_path):
    import websocket

    with lab(tmp_path, "bn") as (_, (_, port, _, token), lines):
        kernels = f"127.0.0.1:{port}/api/kernels"
        kernel = json.loads(get(f"http://{kernels}", token, "POST"))["id"]
        [connection] = tmp_path.rglob(f"kernel-{kernel}.json")
        assert json.loads(connection.read_text())["curve_secretkey"]
        assert connection.stat().st_mode & 0o077 == 0  # the key is for its owner alone
        channels = websocket.create_connection(
            f"ws://{kernels}/{kernel}/channels", header=[f"Authorization: token {token}"], timeout=60
        )
        with contextlib.closing(channels):
            channels.send(request("print(6 * 7)"))
            while (message := json.loads(channels.recv()))["msg_type"] != "stream":
                pass
        assert message["content"] == {"name": "stdout", "text": "42\n"}
        get(f"http://{kernels}/{kernel}", token, "DELETE")
        assert "encryption" not in "".join(lines.get() for _ in range(lines.qsize()))


def request(code):
    from jupyter_client.session import Session

    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    return json.dumps(Session().msg("execute_request", content) | {"channel": "shell"}, default=str)


def listening():
    """``host:port`` of every listening TCP socket, from the system's own table."""
    import psutil

    return [f"{c.laddr.ip}:{c.laddr.port}" for c in psutil.net_connections("tcp4") if c.status == psutil.CONN_LISTEN]
