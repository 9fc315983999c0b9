"""Formulas: their text and programs, and the sets that an enumeration finds."""

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import given

from benchmarks.twins import formulas as reference
from experiments import formula_sets
from experiments.formula_sets import covers, enumerate_set, rank, signed_points, value_points
from jbrl.agents.opps.evaluation import check_defined
from jbrl.agents.opps.formulas import (
    BINARY,
    TOKENS,
    UNARY,
    VARIABLES,
    Expression,
    decode,
    formula_set,
    formula_table,
    parse,
    parse_infix,
    parse_rpn,
)
from jbrl.base.errors import JbrlError

tokens = st.recursive(
    st.sampled_from(VARIABLES).map(lambda v: (v,)),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(UNARY)).map(lambda t: (*t[0], t[1])),
        st.tuples(inner, inner, st.sampled_from(BINARY)).map(lambda t: (*t[0], *t[1], t[2])),
    ),
    max_leaves=8,
).filter(lambda t: len(t) <= 32)
expressions = tokens.map(Expression)


@given(expressions)
def test_printed_formulas_are_read_back(expression):
    assert parse(expression.text) == expression
    assert parse(expression.latex) == expression
    assert parse(expression.rpn) == expression
    assert parse_rpn(expression.rpn) == expression


@pytest.mark.parametrize(
    ("rpn", "text", "latex"),
    [
        ("Q0 Q2 /", "Q0/Q2", r"\frac{Q_0}{Q_2}"),
        ("Q0 Q2 abs max", "max(Q0,|Q2|)", r"\max\left(Q_0, \left|Q_2\right|\right)"),
        ("Q0 Q2 +", "Q0+Q2", "Q_0 + Q_2"),
        ("Q0 Q1 Q2 - -", "Q0-(Q1-Q2)", r"Q_0 - \left(Q_1 - Q_2\right)"),
        ("Q0 Q1 - Q2 -", "Q0-Q1-Q2", "Q_0 - Q_1 - Q_2"),
        ("Q0 Q1 + Q2 *", "(Q0+Q1)*Q2", r"\left(Q_0 + Q_1\right) \cdot Q_2"),
        ("Q0 Q1 Q2 / /", "Q0/(Q1/Q2)", r"\frac{Q_0}{\frac{Q_1}{Q_2}}"),
        ("Q0 inv Q1 *", "1/Q0*Q1", r"\frac{1}{Q_0} \cdot Q_1"),
        ("Q0 Q1 * inv", "1/(Q0*Q1)", r"\frac{1}{Q_0 \cdot Q_1}"),
        ("Q0 Q1 * neg", "-Q0*Q1", r"-Q_0 \cdot Q_1"),
        ("Q0 neg Q1 *", "(-Q0)*Q1", r"\left(-Q_0\right) \cdot Q_1"),
        ("Q0 neg neg", "-(-Q0)", r"-\left(-Q_0\right)"),
        ("Q0 abs log sqrt", "sqrt(log(|Q0|))", r"\sqrt{\log\left(\left|Q_0\right|\right)}"),
    ],
)
def test_print(rpn, text, latex):
    expression = Expression(tuple(rpn.split()))
    assert expression.text == str(expression) == text
    assert (expression.latex, expression.rpn) == (latex, rpn)


@pytest.mark.parametrize(
    ("text", "rpn"),
    [
        (" ( Q0 ) ", "Q0"),
        ("Q0 − Q1 ÷ Q2", "Q0 Q1 Q2 / -"),
        ("Q0×Q1·Q2", "Q0 Q1 * Q2 *"),
        ("||Q0|+Q1|", "Q0 abs Q1 + abs"),
        ("abs(Q0)-ln(Q1)", "Q0 abs Q1 log -"),
        ("Q0--Q1", "Q0 Q1 neg -"),
        ("inv(neg(Q1))", "Q1 neg inv"),
        (r"\frac{1}{Q_{0}}\times Q_1", "Q0 inv Q1 *"),
    ],
)
def test_other_spellings(text, rpn):
    assert parse(text).rpn == rpn


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "position 1: the text ends, expected a variable (Q0, Q1, Q2)"),
        (
            "Q0/Q3",
            "position 4: unknown variable or function 'Q3', expected a variable (Q0, Q1, Q2)",
        ),
        ("Q0 + exp(Q1)", "position 6: unknown variable or function 'exp'"),
        ("Q0+", "position 4: the text ends"),
        ("Q0 Q1", "position 4: found 'Q1', expected an operator"),
        ("Q0^2", "position 3: found '^', expected an operator"),
        ("Q0)", "position 3: found ')'"),
        ("(Q0", "position 4: the text ends, expected ')'"),
        ("|Q0", "position 4: the text ends, expected '|'"),
        ("max(Q0)", "position 7: found ')', expected ','"),
        ("2*Q0", "position 1: found '2', no number but the 1 of 1/… is accepted"),
        ("1", "position 2: the text ends, expected '/'"),
        ("Q0 dvi Q1 /", "position 4: unknown variable or operator 'dvi'"),
        ("Q0 Q1 plus +", "position 7: unknown variable or operator 'plus'"),
        ("Q0 /", "position 4: '/' needs 2 operands, found 1"),
        ("abs", "position 1: 'abs' needs 1 operand, found 0"),
        ("Q0 Q1 Q2 /", "2 values are left over"),
        ("+".join(["Q0"] * 20), "39 variables and operators; at most 32 are accepted"),
        ("(" * 400 + "Q0", "more than 128 brackets within brackets"),
        (7, "expected a text such as 'Q0/Q2'"),
    ],
)
def test_bad_formula_is_refused(text, said):
    with pytest.raises(JbrlError) as error:
        parse(text)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("domain", "counts"),
    [("signed", [3, 12, 43, 226, 1212, 7408]), ("values", [3, 6, 31, 97, 686, 3093])],
)
def test_shipped_sets(domain, counts):
    sets = [formula_set(f"F{n}", domain) for n in range(1, 7)]
    assert [len(s) for s in sets] == counts
    for n, (smaller, larger) in enumerate(itertools.pairwise(sets), start=1):
        assert larger[: len(smaller)] == smaller
        assert max(e.size for e in smaller) == n
        assert len(set(larger)) == len(larger)


def test_the_formulas_of_the_paper_are_in_the_sets():
    assert {"Q0/Q2", "Q2/Q0", "Q0+Q2", "max(Q0,Q1)", "Q0", "Q1+Q2"} <= {
        e.text for e in formula_set("F3")
    }
    assert "max(Q0,|Q2|)" in {e.text for e in formula_set("F4")}
    assert {e.text for e in formula_set("F2")} == {
        form.format(v) for v in VARIABLES for form in ("{}", "|{}|", "1/{}", "-{}")
    }


def test_table():
    table = formula_table("F4", "values")
    assert list(table.columns) == ["rank", "rpn", "text", "latex", "size", "variables"]
    assert table["rank"].tolist() == list(range(1, 98))
    row = table[table.text == "Q0/Q2"].iloc[0][["rpn", "latex", "size", "variables"]]
    assert row.tolist() == ["Q0 Q2 /", r"\frac{Q_0}{Q_2}", 3, "Q0 Q2"]


def test_variables_and_size():
    expression = parse("max(Q2,|Q0|)")
    assert expression.variables == ("Q0", "Q2")
    assert expression.size == 4
    assert set(TOKENS) == {*VARIABLES, *UNARY, *BINARY}


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


@pytest.mark.parametrize("size", [5, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("domain", ["signed", "values"])
def test_shipped_sets_are_what_the_enumeration_finds(domain, size):
    shipped = formula_set(f"F{size}", domain)
    assert list(enumerate_set(size, domain)) == [e.tokens for e in shipped]


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


@pytest.mark.parametrize(
    ("request_of", "message"),
    [
        (lambda: Expression(("Q0", "Q9", "+")), "token 2: unknown variable or operator 'Q9'"),
        (lambda: Expression(()), "empty"),
        (lambda: parse_infix("DIV"), "position 1: unknown"),
        (lambda: formula_set("F7"), r"formula set 'F7': unknown.*F1, F2, F3, F4, F5, F6"),
        (
            lambda: formula_set("F3", "value"),
            "domain of a formula set: 'value' is unknown; did you mean 'values'",
        ),
        (lambda: enumerate_set(7), "size of a formula set: 7 is not accepted; expected 1 to 6"),
        (lambda: enumerate_set(2, "sign"), "'sign' is unknown"),
    ],
)
def test_bad_requests_are_refused(request_of, message):
    with pytest.raises(JbrlError, match=message):
        request_of()


def test_a_line_of_a_shipped_set_is_read_back():
    tokens = parse("max(Q0,|Q2|)/log(Q1)").tokens
    assert decode(formula_sets.encode(tokens)) == tokens
