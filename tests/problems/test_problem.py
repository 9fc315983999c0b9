"""The record, the register, what is unsound."""

import dataclasses
import re

import numpy as np
import pytest

from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Episodes, Steps
from jbrl.mdp.dirichlet import distribution
from jbrl.problems.lookup import problem
from jbrl.problems.prior import DirichletPrior
from jbrl.problems.problem import PROBLEMS, DirichletProblem, register_problem

# Distributions over finite MDPs; tests/conformance/test_environments.py is about the others.
FAMILIES = [name for name in PROBLEMS if isinstance(problem(name), DirichletProblem)]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_problem_is_described(name):
    found = problem(name)
    assert found.short_name == name
    assert found.description == PROBLEMS[name].summary
    assert found.cite
    assert found.mdps.concentrations.dtype == found.mdps.rewards.dtype == np.float32
    assert found.mdps.initial_state.dtype == np.int32
    assert not found.mdps.concentrations.flags.writeable


def test_digest_tells_distributions_apart_and_nothing_else():
    digests = [problem(name).digest for name in PROBLEMS]
    assert len(set(digests)) == len(digests)
    gc = problem("GC")
    assert dataclasses.replace(gc, name="other", description="", cite="").digest == gc.digest
    for field in ("concentrations", "rewards", "initial_state"):
        changed = getattr(gc.mdps, field).copy()
        changed.flat[-1] += 1
        assert (
            dataclasses.replace(gc, mdps=dataclasses.replace(gc.mdps, **{field: changed})).digest
            != gc.digest
        )
    negative_zero = dataclasses.replace(
        gc.mdps, rewards=np.where(gc.mdps.rewards == 0, -0.0, gc.mdps.rewards)
    )
    assert dataclasses.replace(gc, mdps=negative_zero).digest == gc.digest


def ones(*shape):
    return np.ones(shape)


ONES, NO_NEXT = ones(2, 1, 2), [[[1, 1]], [[0, 0]]]
UNSOUND = [
    (ones(2, 1), ONES, 0, "concentrations has shape (2, 1): expected (S, A, S)"),
    (ones(2, 1, 3), ones(2, 1, 3), 0, "concentrations has shape (2, 1, 3): expected (S, A, S)"),
    (ones(2, 0, 2), ones(2, 0, 2), 0, "concentrations has shape (2, 0, 2)"),
    (ONES, ones(2, 2, 2), 0, "rewards has shape (2, 2, 2): expected (2, 1, 2)"),
    ([[[1, -2]], [[1, 1]]], ONES, 0, "concentrations[0][0][1] = -2: expected 0 or a positive num"),
    ([[[1, 1]], [[np.nan, 1]]], ONES, 0, "concentrations[1][0][0] = nan"),
    ([[[1, 1]], [[1, np.inf]]], ONES, 0, "concentrations[1][0][1] = inf"),
    ([[[1, 1]], [[1, 1e-40]]], ONES, 0, "concentrations[1][0][1] = 1e-40"),
    (NO_NEXT, ONES, 0, "concentrations[1][0] is all zeros: expected at least one possible next st"),
    (ONES, [[[0, 0]], [[0, np.nan]]], 0, "rewards[1][0][1] = nan: expected a finite number"),
    (ONES, ONES, 2, "initial_state = 2: expected a state from 0 to 1, or -1"),
    (ONES, ONES, -2, "initial_state = -2"),
]


@pytest.mark.parametrize(
    ("concentrations", "rewards", "initial_state", "message"), UNSOUND, ids=range(len(UNSOUND))
)
def test_unsound_distributions_are_refused(concentrations, rewards, initial_state, message):
    with np.errstate(over="ignore", under="ignore"):
        mdps = distribution(concentrations, rewards, initial_state)
        if "1e-40" in message:
            mdps = dataclasses.replace(mdps, concentrations=np.array(concentrations))
    with pytest.raises(JbrlError, match=f"problem 'mine': {re.escape(message)}"):
        DirichletProblem("Mine", "mine", mdps)


def test_words_are_no_numbers():
    mdps = dataclasses.replace(problem("GC").mdps, rewards=np.full((5, 3, 5), "ten"))
    with pytest.raises(JbrlError, match="rewards holds <U3: expected numbers"):
        DirichletProblem("Mine", "mine", mdps)


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="two problems are called GC"):
        register_problem("GC", title="again")(lambda: None)


def test_a_distribution_over_mdps_is_lived_in_by_steps():
    gc = problem("GC")
    assert (gc.lifetime, gc.recorder) == (Steps(250), None)
    prior = gc.prior(Steps(40), 0.5)
    assert isinstance(prior, DirichletPrior)
    assert (prior.lifetime, float(prior.discount), prior.spec) == (Steps(40), 0.5, gc.spec)
    with pytest.raises(
        JbrlError, match=r"^episodes = 3: the MDPs of 'GC' never end: expected horizon$"
    ):
        gc.prior(Episodes(3), 0.5)
