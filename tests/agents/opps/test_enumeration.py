import pytest

from benchmarks.twins import formulas as reference
from experiments import formula_sets
from experiments.formula_sets import covers, enumerate_set, rank, signed_points, value_points
from jbrl.agents.opps.evaluation import check_defined
from jbrl.agents.opps.formulas import decode, formula_set, parse
from jbrl.base.errors import JbrlError


def test_signed_sets_are_those_of_brute_force():
    """Every string of up to four tokens tried, same points."""
    points = signed_points(seed=5)
    brute = reference.signed_set(4, points.coordinates)
    assert list(enumerate_set(4, "signed", seed=5)) == brute
    assert [sum(len(t) <= n for t in brute) for n in (2, 3, 4)] == [12, 43, 226]


def test_value_sets_are_those_of_brute_force():
    points = value_points(seed=5, n_points=60)
    brute = reference.value_set(3, points.coordinates, points.required, points.ranked)
    assert list(enumerate_set(3, "values", seed=5, n_points=60)) == brute
    assert [sum(len(t) <= n for t in brute) for n in (2, 3)] == [6, 31]


@pytest.mark.parametrize("domain", ["signed", "values"])
def test_shipped_sets_are_what_the_enumeration_finds(domain):
    assert list(enumerate_set(5, domain)) == [e.tokens for e in formula_set("F5", domain)]


@pytest.mark.slow
@pytest.mark.parametrize("domain", ["signed", "values"])
def test_shipped_f6_is_what_the_enumeration_finds(domain):
    assert list(enumerate_set(6, domain)) == [e.tokens for e in formula_set("F6", domain)]


def test_counts_by_seed():
    """Points other than those of the shipped sets: F4 stays the same, F5 changes (1,212 to 1,200)
    except in the domain of values.
    """
    formulas = enumerate_set(5, "signed", seed=2)
    assert sum(len(tokens) <= 4 for tokens in formulas) == 226
    assert len(formulas) == 1200
    assert len(enumerate_set(5, "values", seed=2)) == 686


def test_no_ranking_of_values_is_lost():
    """At fresh points, zeros and equal values among them, each formula has one in the values set,
    defined where it is, that ranks alike.

    All formulas of F5 that differ in value are tried, not only those of the signed set.
    """
    fresh = value_points(seed=99, n_points=300)
    inside = fresh.required - fresh.ranked
    everything = {
        form: ranking for ranked in formula_sets._rankings(fresh, 5) for form, ranking in ranked
    }
    kept: dict[bytes, list] = {}
    for expression in formula_set("F5", "values"):
        found = rank(reference.values(expression.tokens, fresh.coordinates), fresh)
        kept.setdefault(found.order[found.order < inside].tobytes(), []).append(found)
    assert len(everything) > 1500
    lost = [
        f
        for f, r in everything.items()
        if not any(covers(k, r) for k in kept.get(r.order[r.order < inside].tobytes(), []))
    ]
    assert lost == []


def test_undefined_formulas_give_way():
    texts = {e.text for e in formula_set("F3", "values")}
    assert {"-Q0", "Q0-Q0", "Q0/Q1"} <= texts
    assert not {"1/Q0", "|Q0|", "Q0/Q0", "-|Q0|"} & texts


@pytest.mark.parametrize("text", ["1/(Q0-Q0)", "log(-|Q1|)", "sqrt(-1/|Q0|)", "max(Q0,log(Q1-Q1))"])
def test_formulas_that_are_undefined_everywhere_are_refused(text):
    with pytest.raises(JbrlError, match="undefined at every point"):
        check_defined(parse(text))


@pytest.mark.parametrize("text", ["Q0", "1/Q1", "log(-Q1)", "sqrt(-|Q1|)", "max(Q0,log(Q1-Q2))"])
def test_formulas_that_are_defined_somewhere_are_accepted(text):
    check_defined(parse(text))


def test_bad_requests_are_refused():
    with pytest.raises(
        JbrlError, match="size of a formula set: 7 is not accepted; expected 1 to 6"
    ):
        enumerate_set(7)
    with pytest.raises(JbrlError, match="'sign' is unknown"):
        enumerate_set(2, "sign")


def test_a_line_of_a_shipped_set_is_read_back():
    tokens = parse("max(Q0,|Q2|)/log(Q1)").tokens
    assert decode(formula_sets.encode(tokens)) == tokens
