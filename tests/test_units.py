"""Numbers as people read them, held against Python's own rounding."""

import doctest
import math
import random

import pytest

from labkit import units


def test_examples_in_the_docstrings_hold():
    result = doctest.testmod(units)
    assert result.attempted >= 5
    assert result.failed == 0


@pytest.mark.parametrize("digits", [1, 2, 3, 5])
def test_significant_equals_pythons_rounding_and_never_uses_an_exponent(digits):
    rng = random.Random(digits)
    for _ in range(2000):
        value = rng.choice([-1, 1]) * 10 ** rng.uniform(-9, 12)
        text = units.significant(value, digits)
        assert "e" not in text
        if abs(value) < 10**digits:
            assert float(text) == float(f"{value:.{digits - 1}e}")
        else:  # digits before the point are kept: 1234.5 is 1234, not 1230
            assert abs(float(text) - value) <= 0.5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9.996, "10.0"),
        (0.9996, "1.00"),
        (99.96, "100"),
        (0, "0"),
        (-0.5, "-0.500"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_significant_at_the_edges(value, text):
    assert units.significant(value) == text


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (1.0, "1.00 s"),
        (0.9999, "1.00 s"),
        (0.99949, "999 ms"),
        (999.6e-6, "1.00 ms"),
        (1e-6, "1.00 us"),
        (3.2e-10, "0.320 ns"),
        (0, "0 ns"),
        (-0.002, "-2.00 ms"),
        (3600, "3600 s"),
        (float("nan"), "nan"),
    ],
)
def test_seconds_changes_its_unit_where_rounding_does(value_s, text):
    assert units.seconds(value_s) == text


def test_a_time_read_back_is_the_time_that_was_printed():
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    rng = random.Random(7)
    for _ in range(2000):
        value_s = 10 ** rng.uniform(-9, 3)
        number, unit = units.seconds(value_s).split()
        assert math.isclose(float(number) * scale[unit], value_s, rel_tol=0.0051)


def test_sizes_count_in_thousands_and_whole_bytes_stay_whole():
    assert units.size(999) == "999 B"
    assert units.size(1000) == "1.00 kB"
    assert units.size(1024**3) == "1.07 GB"
    assert units.size(0) == "0 B"
    assert units.bandwidth(44e9) == "44.0 GB/s"
    assert units.flop_rate(999.9e9) == "1.00 TFLOP/s"
    assert units.flop_rate(0) == "0 FLOP/s"
    assert units.ratio(1.8749) == "1.87"
