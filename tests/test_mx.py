"""MXNet loads on today's NumPy, and NumPy does not notice."""

import subprocess
import sys

import pytest

pytest.importorskip("numpy")
mxnet_missing = __import__("importlib.util").util.find_spec("mxnet") is None
needs_mxnet = pytest.mark.skipif(mxnet_missing, reason="no MXNet package for this machine")

WATCH = """
import sys, types, warnings
import numpy
def names():
    # Submodules that an import adds (numpy.testing) are not NumPy's names being changed.
    return {k: v for k, v in vars(numpy).items() if not isinstance(v, types.ModuleType) and k != "__warningregistry__"}
{before}
found = names()
import labkit as lab
mx = lab.mx.load()
left = names()
assert left.keys() == found.keys(), left.keys() ^ found.keys()
assert all(left[k] is found[k] for k in found), [k for k in found if left[k] is not found[k]]
{after}
assert float((mx.nd.ones((2, 2)) + 1).sum().asscalar()) == 8.0
print("fine", numpy.__version__)
"""
OTHERS = "import scipy.stats, scipy.optimize, scipy.signal, matplotlib.figure, matplotlib.backends.backend_agg\n"
TORCH = "import torch; assert torch.ones(2).numpy().sum() == 2\n"
USE_OTHERS = (
    "import scipy.stats; assert abs(scipy.stats.norm.cdf(0.0) - 0.5) < 1e-12\n"
    "import matplotlib.figure; matplotlib.figure.Figure().add_subplot().plot([1, 2], [3, 4])\n"
)


def run(code: str, python: str = sys.executable, timeout_s: float = 120):
    return subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=timeout_s, check=False)


@needs_mxnet
@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [("", USE_OTHERS + TORCH), (OTHERS + TORCH, USE_OTHERS), (TORCH, USE_OTHERS)],
    ids=["mxnet first", "mxnet last", "torch, mxnet, others"],
)
def test_numpy_is_left_as_it_was_found(before, after):
    result = run(WATCH.replace("{before}", before).replace("{after}", after))
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.startswith("fine")


@needs_mxnet
@pytest.mark.slow
def test_torch_keeps_its_threads():
    code = "import torch; torch.set_num_threads(2); import labkit as lab; lab.mx.load(); print(torch.get_num_threads())"
    result = run(code)
    assert result.stdout.split() == ["2"], result.stderr[-2000:]


@needs_mxnet
@pytest.mark.slow
def test_the_watch_sees_a_name_left_behind():
    code = WATCH.replace("{before}", "").replace("{after}", "")
    result = run(code.replace("left = names()", "numpy.Inf_left = 1; left = names()"))
    assert result.returncode != 0
    assert "Inf_left" in result.stderr


@needs_mxnet
@pytest.mark.slow
def test_names_that_mxnet_looks_up_later_are_there():
    code = """
import labkit as lab
mx = lab.mx.load()
from mxnet.gluon.contrib.estimator.event_handler import EarlyStoppingHandler, np
assert np.Inf == float("inf")
y = mx.np.array([1.0, 2.0, 3.0])
assert y[y > 1.5].tolist() == [2.0, 3.0]
assert mx.nd.moveaxis(mx.nd.zeros((2, 3)), 0, 1).shape == (3, 2)
import numpy
print(hasattr(numpy, "Inf"), numpy.lib.NumpyVersion(numpy.__version__) >= "2.0.0")
"""
    result = run(code)
    assert result.returncode == 0, result.stderr[-2000:]
    has_name, is_numpy_2 = result.stdout.split()
    # NumPy 1.26 has Inf of its own; NumPy 2 must not have got it from here.
    assert has_name != is_numpy_2


def test_missing_names_stand_only_inside_the_block():
    import numpy

    from labkit import _legacy_numpy

    added = _legacy_numpy.legacy_names()
    assert "npv" in added
    with _legacy_numpy.standing_on_numpy():
        assert all(getattr(numpy, name) is not None for name in added)
        with pytest.raises(NotImplementedError):
            numpy.npv(0.1, [1])
    assert not any(name in vars(numpy) for name in added)


def test_names_go_even_when_the_import_fails():
    import numpy

    from labkit import _legacy_numpy

    with pytest.raises(RuntimeError, match="torn"), _legacy_numpy.standing_on_numpy():
        raise RuntimeError("torn")
    assert "npv" not in vars(numpy)


@pytest.mark.parametrize("language", ["bn", "en"])
@pytest.mark.parametrize(("system", "processor"), [("Darwin", "arm64"), ("Windows", "AMD64")])
def test_no_wheel_is_said_with_the_way_out(monkeypatch, language, system, processor):
    import labkit as lab
    from labkit import mx

    monkeypatch.setattr(mx.platform, "system", lambda: system)
    monkeypatch.setattr(mx.platform, "machine", lambda: processor)
    monkeypatch.setattr(mx.importlib.util, "find_spec", lambda _name: None)
    monkeypatch.delitem(sys.modules, "mxnet", raising=False)
    lab.use_language(language)
    with pytest.raises(mx.MXNetUnavailableError) as raised:
        mx.load()
    text = str(raised.value)
    assert "Colab" in text
    assert "WSL" in text
    assert system in text
    assert ("বা" in text) == (language == "bn")


def test_a_missing_helper_module_names_the_package_to_install():
    from labkit import mx

    text = mx._why_it_failed(ModuleNotFoundError("No module named 'distutils'", name="distutils"))
    assert "setuptools" in text
