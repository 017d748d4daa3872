"""Money and steps against arithmetic done by hand."""

import math

import pytest

from labkit import cost


def test_break_even_is_once_over_saving():
    found = cost.break_even(30.0, 0.20, 0.10)
    assert found.steps == 300
    without, with_it = found.total_s(300)
    assert without == pytest.approx(with_it)
    assert found.total_s(299)[0] < found.total_s(299)[1]
    assert found.total_s(301)[0] > found.total_s(301)[1]


def test_break_even_never_comes_when_it_is_slower():
    assert math.isinf(cost.break_even(30.0, 0.10, 0.10).steps)
    assert math.isinf(cost.break_even(30.0, 0.10, 0.20).steps)
    assert math.isinf(cost.break_even(0.0, 0.10, 0.20).steps)
    assert cost.break_even(0.0, 0.20, 0.10).steps == 0


@pytest.mark.parametrize("language", ["bn", "en"])
def test_break_even_says_so(language):
    from labkit import use_language

    use_language(language)
    assert "300" in str(cost.break_even(30.0, 0.20, 0.10))
    assert "30.0 s" in str(cost.break_even(30.0, 0.20, 0.30))
    assert "100 ms" in str(cost.break_even(0.0, 0.20, 0.10))
    for free in (cost.break_even(0.0, 0.20, 0.10), cost.break_even(0.0, 0.20, 0.30)):
        assert " 0 " not in str(free), "what costs nothing first is not said to cost 0 seconds"
    assert ("ধাপ" in str(cost.break_even(30.0, 0.20, 0.10))) == (language == "bn")


def test_rental_is_hours_times_rate_times_devices():
    run = cost.rental(0.5, 7200, rate_per_hour=150, devices=2, once_s=3600)
    assert run.hours == pytest.approx(2.0)
    assert run.money == pytest.approx(600.0)


def test_spot_pays_for_the_work_done_twice():
    # Two interruptions an hour, nine minutes lost each: 0.3 of every hour is done twice.
    spot = cost.rental(1.0, 7 * 3600, rate_per_hour=40, interruptions_per_hour=2, lost_per_interruption_s=540)
    on_demand = cost.rental(1.0, 7 * 3600, rate_per_hour=100)
    assert spot.hours == pytest.approx(10.0)
    assert spot.lost_hours == pytest.approx(3.0)
    assert spot.saved_against(on_demand) == pytest.approx(300.0)
    with pytest.raises(ValueError, match=r"3600|1\.00"):
        cost.rental(1.0, 10, rate_per_hour=1, interruptions_per_hour=4, lost_per_interruption_s=900)


def test_currencies_are_not_mixed():
    with pytest.raises(ValueError, match="USD"):
        cost.rental(1, 1, rate_per_hour=1, currency="USD").saved_against(cost.rental(1, 1, rate_per_hour=1))


def test_twice_the_speed_at_twice_the_price_is_break_even():
    slow = cost.rental(1.0, 3600, rate_per_hour=100)
    fast = cost.rental(0.5, 3600, rate_per_hour=100 * cost.price_ratio_to_break_even(2.0))
    assert slow.money == pytest.approx(fast.money)


@pytest.mark.parametrize(
    ("efficiency", "worth", "pays"), [(0.9, 0, False), (1.1, 0, True), (0.9, 2, True), (0.4, 2, False)]
)
def test_a_second_device_pays_only_if_the_hour_is_worth_it(efficiency, worth, pays):
    one = 1.0 + worth
    two = (2 * 1.0 + worth) / (2 * efficiency)
    assert (two < one) == pays  # the formula by hand
    assert cost.second_device_pays(efficiency, hour_is_worth=worth, rate_per_hour=1.0) == pays


@pytest.mark.parametrize(
    "arguments", [{"step_s": 0, "steps": 1}, {"step_s": -1, "steps": 1}, {"step_s": 1, "steps": math.nan}]
)
def test_senseless_times_are_refused(arguments):
    with pytest.raises(ValueError, match="step"):
        cost.rental(**arguments, rate_per_hour=1)


def test_published_claims_are_enough_and_each_can_be_looked_up():
    claims = cost.published_claims()
    assert len(claims) >= 12
    assert len({claim.source.split(",")[0] for claim in claims}) >= 8
    assert sum(claim.outcome != "faster" for claim in claims) >= 3
    assert len({claim.id for claim in claims}) == len(claims)
    for claim in claims:
        assert claim.url.startswith("https://")
        assert all([claim.measured, claim.hardware, claim.versions, claim.date, claim.source])
        assert 0 < claim.claim_low <= claim.claim_high
        outcome = "slower" if claim.claim_high < 0.97 else "faster" if claim.claim_low > 1.03 else "no gain"
        assert claim.outcome == outcome, claim.id


def test_energy_says_why_it_cannot_be_read(monkeypatch, tmp_path):
    from labkit import _energy, hardware

    monkeypatch.setattr(hardware, "has_cuda", lambda: False)
    monkeypatch.setattr(_energy, "_RAPL", tmp_path)
    result = _energy.energy(lambda: None)
    assert result.joules is None
    assert "RAPL" in str(result)


class FakeNvml:
    """The driver's library, as far as it is called; it looks the GPU up among all that the machine has."""

    def __init__(self, levels):
        self.levels, self.asked = iter(levels), []

    def nvmlInit_v2(self):  # noqa: N802 - NVML's own name
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):  # noqa: N802
        self.asked.append(uuid)
        handle._obj.value = 0x1234
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, handle, millijoules):  # noqa: N802
        assert handle.value == 0x1234
        level = next(self.levels)
        millijoules._obj.value = max(0, level)
        return 3 if level < 0 else 0  # NVML_ERROR_NOT_SUPPORTED


@pytest.mark.parametrize("levels", [(5_000, 7_000, 10_500), (-1,)])
def test_energy_reads_the_current_gpu_by_its_own_name(levels, monkeypatch):
    """NVML also counts the GPUs that CUDA_VISIBLE_DEVICES hides, so its number 0 may be another one."""
    import types

    from labkit import _energy, hardware

    torch = pytest.importorskip("torch")
    nvml = FakeNvml(levels)
    monkeypatch.setattr(hardware, "has_cuda", lambda: True)
    monkeypatch.setattr(hardware, "sync", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties",
                        lambda device: types.SimpleNamespace(uuid=f"0000-000{device}"))
    monkeypatch.setattr(_energy.ctypes, "CDLL", lambda name: nvml)
    result = _energy.energy(lambda: None, seconds_s=0)
    assert nvml.asked == [b"GPU-0000-0001"]
    if levels[0] > 0:
        assert result.source == "NVML"
        assert result.joules == pytest.approx(3.5)
    else:
        assert result.joules is None
        assert "NVML error 3" in str(result)


def test_energy_reads_rapl_and_its_wrap_around(monkeypatch, tmp_path):
    from labkit import _energy, hardware

    package = tmp_path / "intel-rapl:0"
    package.mkdir()
    (package / "max_energy_range_uj").write_text("10000000")
    (package / "energy_uj").write_text("9000000")
    monkeypatch.setattr(hardware, "has_cuda", lambda: False)
    monkeypatch.setattr(_energy, "_RAPL", tmp_path)
    # The first call draws 3 J past the counter's end at 10 J; it is not counted, as warm-up.
    levels = iter(["9500000", "2500000"])
    result = _energy.energy(lambda: (package / "energy_uj").write_text(next(levels)), seconds_s=0)
    assert result.joules == pytest.approx(3.0)
    assert result.source == "RAPL"
