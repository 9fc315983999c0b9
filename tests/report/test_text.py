import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jbrl.report import text
from jbrl.stats import table


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *[(2e-11, "0.02 ns"), (4.1e-7, "410 ns"), (9.9996e-7, "1 µs"), (1.2345e-6, "1.2 µs")],
        *[(0.05, "50 ms"), (1, "1 s"), (59.99, "1 min"), (90, "1.5 min"), (449, "7.5 min")],
        *[(3600, "1 h"), (86400 * 12, "12 d"), (0, "0 s"), (math.nan, "–")],
    ],
)
def test_seconds(seconds, words):
    assert text.seconds_text(seconds) == words


@given(st.floats(1e-9, 1e7))
def test_seconds_can_be_read_back(seconds):
    sizes = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
    number, unit = text.seconds_text(seconds).split(" ")
    assert float(number) * sizes[unit] == pytest.approx(seconds, rel=0.051)


@pytest.mark.parametrize(
    ("widths", "decimals"),
    [
        *[([0.87, 1.9, 0.9], 2), ([1.9, 1.8], 2), ([0, math.nan], 2), ([], 2)],
        *[([0.07], 3), ([25.0], 0), ([2500.0], 0), ([1e-9], 6)],
    ],
)
def test_decimals_show_two_digits_of_the_width(widths, decimals):
    assert text.decimals_for(widths) == decimals


def test_score():
    assert text.score_text(42.468, 1.912, 2) == "42.47 ± 1.91"
    assert text.score_text(-0.5, 0.25, 2) == "−0.50 ± 0.25"
    assert text.score_text(3, math.nan, 2) == "3.00"
    assert text.score_text(math.nan, 1, 2) == "–"


def test_parameters():
    shown = table.parameters_text('{"K": 500, "epsilon": 1e-06, "lazy": true, "c": 0.12345678}')
    assert shown == "K = 500, ε = 1e-06, lazy = true, c = 0.123457"
    assert table.parameters_text('{"epsilon_0": 1.0, "sigma": 0.5}', ["sigma"]) == "σ = 0.5"
    assert table.parameters_text("{}") == ""
    assert table.parameters_text("by hand") == "by hand"
    assert table.parameters_text("[1]") == "[1]"


def test_settings_that_six_digits_do_not_tell_apart_have_all():
    texts = [f'{{"tau": {tau}, "c": 1}}' for tau in ("0.1234567", "0.12345671", "1")]
    assert list(table.setting_texts(texts).values()) == ["τ = 0.1234567", "τ = 0.12345671", "τ = 1"]
    drawn = [f'{{"tau": {{"uniform": [0.1, {high}]}}}}' for high in ("1000001.5", "1000002.5")]
    names = table.agent_names(("A", text) for text in (*drawn, "by hand"))
    assert sorted(names.values()) == [
        "A(by hand)",
        "A(τ ~ uniform(0.1; 1000001.5))",
        "A(τ ~ uniform(0.1; 1000002.5))",
    ]
    assert table.setting_texts(texts[:1], []) == {texts[0]: ""}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *[("tau", "τ"), ("epsilon_0", "ε₀"), ("epsilon0", "ε₀"), ("rollouts", "rollouts")],
        *[("beta_max", "beta_max"), ("n_mu", "n_mu"), ("K", "K")],
    ],
)
def test_symbols(name, words):
    assert table.symbol(name) == words


def test_only_parameters_that_vary_are_shown():
    assert table.varied(['{"a": 1, "b": 2}', '{"a": 1, "b": 3}']) == ["b"]
    assert table.varied(['{"a": 1}', '{"a": 1, "b": 3}']) == ["b"]
    assert table.varied(['{"a": 1}', '{"a": 1}']) is None
    assert table.varied(["no json", "either"]) is None
    # 1 and true are equal in Python and different as parameters.
    assert table.varied(['{"a": 1}', '{"a": true}']) == ["a"]


@settings(max_examples=40)
@given(st.lists(st.text(), unique=True, max_size=8))
def test_slugs_are_fit_for_ids_and_differ(names):
    found = []
    for name in names:
        found.append(text.slug(name, found))
    assert len(set(found)) == len(names)
    assert all(s and set(s) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for s in found)


def test_a_slug_fits_into_the_name_of_a_file():
    first = text.slug("é" + "a" * 300)
    assert first == "a" * 80 != text.slug("a" * 400, [first])


def test_listing():
    assert text.listing(["a"]) == "a"
    assert text.listing(["a", "b", "c"]) == "a, b and c"


def test_capacities_left_to_the_agent_are_not_told_unless_they_differ():
    parameters = '{"depth": 15, "max_depth": 0, "max_samples": 8}'
    assert table.parameters_text(parameters) == "depth = 15, max_samples = 8"
    assert table.parameters_text(parameters, ["max_depth"]) == "max_depth = 0"
