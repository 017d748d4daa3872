"""MXNet where Colab is: Python 3.13 and NumPy 2.1.3, installed by the very command that the lesson tells people to run.

No torch there, as nothing of MXNet's needs it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess

import pytest

from tests.processes import ROOT
from tests.test_setup_install import python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# What Colab has before the command is run; its setuptools is older, which the command does not mind.
THERE = ("numpy==2.1.3",)
ALL = """
import importlib.util, json, sys
import numpy
from labkit import launch
import labkit as lab

before = {k: v for k, v in vars(numpy).items() if type(v).__name__ != "module"}
mx = lab.mx.load()
after = {k: v for k, v in vars(numpy).items() if type(v).__name__ != "module"}
changed = sorted(k for k in before.keys() | after.keys() if before.get(k) is not after.get(k))

contexts = [mx.cpu(0), mx.cpu(1)]
net = mx.gluon.nn.Dense(1, in_units=4)
net.initialize(mx.init.One(), ctx=contexts)
trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
x = mx.nd.array(numpy.random.RandomState(0).rand(16, 4))
losses = []
for step in range(10):
    with mx.autograd.record():
        parts = [(net(half) ** 2).sum() for half in mx.gluon.utils.split_and_load(x, contexts)]
    mx.autograd.backward(parts)
    trainer.step(16)
    losses.append(sum(float(part.asscalar()) for part in parts))
weights = [net.weight.data(context).asnumpy().tolist() for context in contexts]
timed = lab.measure(lambda: net(x), name="net", budget_s=0.1)
workers = launch.mxnet(sys.argv[1], 2, 1, show=False, import_from=sys.argv[2])
print(json.dumps({
    "python": sys.version_info[:2], "numpy": numpy.__version__, "mxnet": mx.__version__, "changed": changed,
    "torch": importlib.util.find_spec("torch") is not None, "losses": losses, "weights": weights,
    "device": timed.device, "workers": [[found["rank"], found["weights"]] for found in workers],
}))
"""


def test_the_lessons_own_command_gives_an_mxnet_that_loads_trains_and_distributes(tmp_path):
    made = tmp_path / "venv"
    subprocess.run([python("3.13"), "-m", "venv", made], check=True)
    own = made / "bin" / "python"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LABKIT_LANG": "en"}

    def run(*words: str) -> str:
        done = subprocess.run([own, *words], env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-m", "pip", "install", "-q", "--no-compile", "--only-binary", ":all:", *THERE)
    command = shlex.split(run("-c", "from labkit import mx; print(mx.install_command())"))
    assert command[:2] == ["%pip", "install"]
    run("-m", "pip", *command[1:])

    found = json.loads(run("-c", ALL, str(ROOT / "tests" / "ranks" / "ps_sync.py"), str(ROOT)).splitlines()[-1])
    assert (found["python"], found["numpy"], found["mxnet"]) == ([3, 13], "2.1.3", "1.9.1")
    assert found["changed"] == []
    assert not found["torch"]
    assert found["losses"][-1] < 0.5 * found["losses"][0]
    assert found["weights"][0] == found["weights"][1]
    assert found["device"] == "cpu(0)"
    (first, one), (second, other) = found["workers"]
    assert (first, second) == (0, 1)
    assert one == other
