"""Lifetimes whose agents draw how many features they have: grouped by size, and no bit depends on
it; numbers of the agent beside those of the recorder; NaN in the weights.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jbrl
from jbrl.agents.linear import features
from jbrl.agents.registry import AGENTS
from jbrl.environments.spec import Episodes, Steps
from jbrl.play import blocks, lifetimes
from jbrl.play.blocks import BlockScheduler
from jbrl.play.play import make_run
from jbrl.play.protocol import Protocol
from jbrl.play.resources import Resources
from jbrl.problems.lookup import problem
from jbrl.rollout import episodes
from jbrl.rollout.contract import as_arrays
from jbrl.stats.published import jordan2020
from tests.agents.linear import scripted

N = 40


@pytest.fixture(scope="module", autouse=True)
def _small():
    """Groups of 16 lanes, and features in chunks of 32."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifetimes, "GROUP_BYTES", 1)
        patch.setattr(features, "CHUNK", 32)
        yield


@functools.cache
def prepared(n=N, devices=1, **values):
    found = problem("MountainCar")
    agent = AGENTS["Sarsa-lambda"].agent(**values)
    resources = Resources(jax.devices()[:devices])
    run = make_run(agent, Protocol(found, found, n, 3, Steps(512)), resources=resources)
    run.prepare()
    return run


def chunks(run, **options):
    found = list(run.chunks(**options))
    scores = np.concatenate([chunk.returns for chunk in found])
    names = found[0].metrics
    return scores, {name: np.concatenate([c.metrics[name] for c in found]) for name in names}


@pytest.fixture(scope="module")
def expected():
    return chunks(prepared())


@pytest.mark.slow
def test_groups_hold_lifetimes_of_similar_size(expected):
    run = prepared(devices=2)
    dealt = []
    plain = BlockScheduler.positions

    def deal(self, live, sizes=None):
        dealt.append((plain(self, live, sizes), live, sizes))
        return dealt[-1][0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockScheduler, "positions", deal)
        run.scheduler._begun(0, 0, N)
    (numbers, groups), live, sizes = dealt[-1]
    by_number = dict(zip(live, sizes, strict=True))
    spans = []
    for rows in numbers.reshape(-1, 16):
        here = [by_number[number] for number in rows if number >= 0]
        spans += [(max(here), min(here))] if here else []
    spans.sort(reverse=True)
    assert len(spans) == groups.sum() == 3
    assert all(least >= greatest for (_, least), (greatest, _) in itertools.pairwise(spans))
    assert abs(int(groups[0]) - int(groups[1])) <= 1, "each device has its share of the large ones"


def test_no_bit_depends_on_the_grouping(expected):
    """Fewer lifetimes in other chunks, and groups in the order of their numbers."""
    scores, metrics = expected
    assert np.unique(metrics["drawn_features"]).size > 10
    assert {values.dtype for values in metrics.values()} == {np.dtype(np.float64)}
    for found in (chunks(prepared(n=33), size=7), _ungrouped()):
        n = len(found[0])
        np.testing.assert_array_equal(found[0], scores[:n])
        for name, values in found[1].items():
            np.testing.assert_array_equal(values, metrics[name][:n])


def _ungrouped():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockScheduler, "sizes", lambda self, lanes: None)
        return chunks(prepared())


def test_weights_are_the_same_bits_in_any_group(expected):
    del expected
    grouped, plain = {}, {}
    for found, sizes in ((grouped, None), (plain, lambda self, lanes: None)):
        with pytest.MonkeyPatch.context() as patch:
            if sizes:
                patch.setattr(BlockScheduler, "sizes", sizes)
            patch.setattr(blocks, "FASTEST", 0.0)
            run = prepared()

            def between(flight, found=found):
                weights = np.asarray(flight.lanes.lane.agent.values.weights)
                for place, number in enumerate(flight.numbers):
                    if number >= 0:
                        found[number, int(flight.lanes.lane.block[place])] = weights[place]

            chunks(run, between=between)
    assert grouped.keys() == plain.keys() and len(grouped) >= N
    for key, weights in grouped.items():
        np.testing.assert_array_equal(weights, plain[key])
    assert any((weights != 0).any() for weights in grouped.values())


@pytest.mark.slow
def test_a_lifetime_can_be_interrupted(expected):
    saved = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "FASTEST", 0.0)
        run = prepared()
        chunks(run, between=lambda flight: saved.append(flight.arrays()))
    later = prepared(devices=2)
    scores, metrics = chunks(later, checkpoints=[(saved[0], 1.0)])
    np.testing.assert_array_equal(scores, expected[0])
    for name, values in metrics.items():
        np.testing.assert_array_equal(values, expected[1][name])


@pytest.mark.slow
@pytest.mark.parametrize(("test", "lanes"), [("MountainCar", 64), ("Gridworld-10d", 64)])
def test_a_step_is_one_pass_over_weights_and_one_over_the_trace(test, lanes):
    """Of those that write; nothing of this size is copied."""
    if jax.default_backend() != "cpu":
        pytest.skip("reads a program for CPUs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "CHUNK", 512)
        found = problem(test)
        agent, lifetime = as_arrays(AGENTS["Sarsa-lambda"].agent()), Episodes(100)
        prior = found.prior(lifetime, 0.95)
        key = jax.random.key(0)
        rules = episodes.Rules(agent, found.environment, found.recorder, key, lifetime)
        begin = jax.vmap(lambda index: episodes.begin(rules, prior, index))
        shapes = jax.eval_shape(begin, jnp.arange(lanes, dtype=jnp.int32))
        advance = jax.jit(jax.vmap(lambda lane: episodes.advance(rules, lane)), donate_argnums=0)
        text = advance.lower(shapes).compile().as_text()
    size = math.prod(shapes.agent.values.weights.shape)
    assert scripted.passes_in_loops(text, size) == 2


def test_nan_is_counted_and_the_lifetime_goes_on():
    """Step sizes so large that weights overflow: all lifetimes have a score."""
    values = {"fourier_alpha_low": 1e3, "fourier_alpha_high": 1e3}
    scores, metrics = chunks(prepared(**values))
    assert np.isfinite(scores).all()
    assert (metrics["skipped_updates"] > 0).any()
    assert (metrics["undefined_steps"] > 0).any()


# Lifetimes played here; on tables the algorithms called -s are those without.
PLAYED = {"Chain-10d": 400, "Chain-10s": 400, "Gridworld-5s": 400, "MountainCar": 60}
CELLS = [
    (cell.algorithm, cell.environment, PLAYED[cell.environment], cell.mean)
    for cell in jordan2020.cells().itertuples()
    if cell.environment in PLAYED
    and (cell.environment == "MountainCar" or not cell.algorithm.endswith("-s"))
    and (cell.environment != "Chain-10d" or cell.algorithm == "Sarsa-lambda")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "test", "n", "published"), CELLS)
def test_means_are_the_published_ones(name, test, n, published):
    """Within 3.5 standard errors and the rounding: false-alarm rate 5e-4 each; one fixed seed."""
    scores = jbrl.play(name, test=test, n_environments=n, seed=11).returns
    error = scores.std(ddof=1) * (1 / n + 1 / 10_000) ** 0.5
    assert abs(scores.mean() - published) < 3.5 * error + 0.05
