"""Kernels that labkit and its tests start: reached through Unix sockets where there are such, and without a warning."""

import sys
import tempfile

import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from labkit._kernel_sockets import unix_sockets

LOOK = "from ipykernel.connect import get_connection_info\nprint(get_connection_info(unpack=True)['transport'])"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no Unix sockets")
@pytest.mark.parametrize(("deep", "transport"), [("", "ipc"), ("d" * 100, "tcp")])
def test_a_kernel_has_unix_sockets_where_their_path_fits(deep, transport, tmp_path, monkeypatch, capfd):
    if deep:
        (tmp_path / deep).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / deep))
    client = NotebookClient(new_notebook(cells=[new_code_cell(LOOK)]), timeout=60, kernel_name="python3")
    with unix_sockets(client):
        client.execute()
    assert client.nb.cells[0].outputs[0].text == f"{transport}\n"
    assert ("without encryption" in capfd.readouterr().err) <= (transport == "tcp")
