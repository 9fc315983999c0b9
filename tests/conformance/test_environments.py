"""Properties of every environment and every problem made of one: a table over the registers.

A new one is tested by being there.
"""

import dataclasses
import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.environments.environment import ENVIRONMENTS, Perturbed, as_arrays, drawn
from jbrl.environments.spec import Box, Discrete, Episodes
from jbrl.mdp.sampling import stream
from jbrl.problems.lookup import problem
from jbrl.problems.problem import PROBLEMS, Setting
from tests.environments import playing
from tests.environments.playing import LANES, TRACES, T, lane, lifetimes, on_host, together

ROOT = Path(__file__).parents[2]
SETTINGS = [name for name, entry in PROBLEMS.items() if isinstance(entry.make(), Setting)]
# In which the same actions lead to different observations or rewards in different lifetimes.
RANDOM = {"Chain-10s", "Chain-50s", "DeepSea-stochastic", "Gridworld-5s", "Gridworld-10s"}
RANDOM |= {"BsuiteCartPole", "BsuiteCartPoleSwingup", "BsuiteMountainCar", "Catch", "ImageBandit"}
RANDOM |= {"MemoryChain", "UmbrellaChain", "Acrobot", "CartPole", "MountainCar", "Pinball"}
RANDOM |= {f"Pinball-{name}" for name in ("empty", "box", "medium", "single")}
# whose velocities leave their nominal bounds: light carts and short poles, slanted edges
FAR = {"CartPole", "Pinball-medium", "Pinball-single"}

# One of each kind of observation: a state, a state among many, numbers, an image. `make test` plays
# these and their settings but the longest, `make test-slow` all others, a newly registered one too.
QUICK = {"Chain", "DeepSea", "MountainCar", "ImageBandit"}


def quick_first(names):
    """The names as parameters of a test: those that are not in `QUICK` are slow."""
    return [
        name
        if name.split("-")[0] in QUICK and "-50" not in name
        else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(names)
    ]


every_problem = pytest.mark.parametrize("name", sorted({*ENVIRONMENTS, *SETTINGS}))
every_environment = pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
every_played_problem = pytest.mark.parametrize("name", quick_first({*ENVIRONMENTS, *SETTINGS}))
every_played_environment = pytest.mark.parametrize("name", quick_first(ENVIRONMENTS))


@functools.cache
def played(name, seed=0):
    return playing.play(problem(name).environment, seed)


def assert_equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


@every_problem
def test_is_described(name):
    found = problem(name)
    assert found.short_name == name
    assert re.fullmatch(r"[A-Z].*[.]", found.description)
    assert len(found.name) > 3
    keys = [key.strip() for key in found.cite.split(",")]
    bibliography = (ROOT / "jbrl" / "references.bib").read_text(encoding="utf-8")
    assert all(f"{{{key}," in bibliography for key in keys)


@every_environment
def test_has_a_page_with_its_settings(name):
    pages = (ROOT / "docs" / "environments").glob("*.md")
    table = re.compile(rf"^```{{parameters}} {name}\b", re.MULTILINE)
    assert any(table.search(page.read_text(encoding="utf-8")) for page in pages)


@every_played_problem
def test_same_key_is_the_same_life_and_another_key_another(name):
    lanes, actions, _, log = played(name)
    again = on_host(together(lanes, lifetimes(problem(name).environment)[1], actions))[1]
    assert_equal(again, log)
    other_lanes, keys = lifetimes(problem(name).environment, seed=1)
    other = on_host(together(other_lanes, keys, actions))[1]
    seen, other_seen = ((run.step.observation, run.step.reward) for run in (log, other))
    differ = any((a != b).any() for a, b in zip(seen, other_seen, strict=True))
    assert differ == (name in RANDOM)


@every_played_problem
def test_a_lane_is_the_same_alone(name):
    lanes, actions, _, log = played(name)
    keys = lifetimes(problem(name).environment)[1]
    for i in (0, LANES - 1):
        assert_equal(on_host(playing.alone(lane(lanes, i), keys[i], actions[i]))[1], lane(log, i))


@every_played_problem
def test_compiled_and_not_compiled_agree(name):
    """To the last bit for integers; floats may be rounded once more or less."""
    lanes, actions, _, log = played(name)
    environment, keys = lane(lanes, 1), lifetimes(problem(name).environment)[1]
    steps = jax.random.split(keys[1], T + 1)
    state, observation = environment.reset(steps[0])
    for t in range(25):
        np.testing.assert_allclose(observation, log.before[1, t], atol=1e-6)
        step_key, reset_key = jax.random.split(steps[t + 1])
        state, step = environment.step(step_key, state, jnp.int32(actions[1, t]))
        observation = step.observation
        expected = jax.tree.map(lambda leaf, t=t: leaf[1, t], log.step)
        close = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-6)
        jax.tree.map(close, on_host(step), expected)
        if step.terminated or step.truncated:
            state, observation = environment.reset(reset_key)


@every_played_problem
def test_steps_keep_to_the_spec_and_episodes_end_once_and_in_time(name):
    found, (_, _, _, log) = problem(name), played(name)
    space, lifetime = found.spec.observation, found.lifetime
    for values in (log.before, log.step.observation):
        assert (values.shape[2:], values.dtype) == (space.shape, space.dtype)
        if isinstance(space, Box):
            low, high = (np.asarray(bound, np.float32) for bound in (space.low, space.high))
            margin = (5 if name in FAR else 0.1) * (high - low)  # bounds are nominal
            assert np.isfinite(values).all()
            assert ((values >= low - margin) & (values <= high + margin)).all()
        else:
            assert values.min() >= (0 if isinstance(space, Discrete) else -1)
            assert values.max() < space.n
            assert (log.before >= 0).all()  # only a terminal observation may be -1
    assert log.step.reward.dtype == np.float32
    assert np.isfinite(log.step.reward).all()
    assert isinstance(lifetime, Episodes)
    assert not (log.step.terminated & log.step.truncated).any()
    ended = log.step.terminated | log.step.truncated
    for row in ended:
        gaps = np.diff(np.concatenate([[-1], np.flatnonzero(row), [T - 1]]))
        assert gaps.max() <= lifetime.max_steps
    assert ended.any(axis=1).all()
    for values in log.metrics.values():
        assert (values.dtype, values.shape) == (np.float32, (LANES, T))
        assert np.isfinite(values).all()
    environment = as_arrays(found.environment)
    begun = environment.metrics(environment.reset(jax.random.key(0))[0])
    assert all(float(value) == 0 for value in begun.values())  # anew with each episode


@every_played_problem
def test_perturbation_changes_values_alone(name):
    environment = problem(name).environment
    lane = jax.jit(drawn)(environment, jax.random.key(1))
    assert jax.tree.structure(lane) == jax.tree.structure(environment)
    for old, new in zip(jax.tree.leaves(environment), jax.tree.leaves(lane), strict=True):
        assert (new.shape, new.dtype) == (old.shape, old.dtype)
    assert lane.spec == environment.spec
    if not isinstance(environment, Perturbed):
        assert_equal(on_host(lane), environment)


@every_played_problem
def test_samples_hang_on_their_number_and_the_seed_alone(name):
    found = problem(name)
    draw = jax.jit(jax.vmap(found.sample, in_axes=(None, 0)))
    key, number = jax.random.key(2), jnp.int32(3)
    one = lane(on_host(draw(key, jnp.arange(5))), 3)
    assert_equal(one, on_host(found.sample(key, number)))
    assert_equal(one, on_host(drawn(found.environment, stream(key, number, "mdp"))))


def other_value(field):
    """Another value that a parameter accepts."""
    value, high = field.default, field.metadata.get("high", np.inf)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    other = value * 0.5 + min(0.07, high / 4)
    return field.metadata["low"] / 2 if other == value else other


def settings_of(cls, but):
    return [f for f in dataclasses.fields(cls) if f.default is not None and f.name not in but]


@every_played_environment
def test_settings_of_one_size_share_a_compiled_program(name):
    cls = ENVIRONMENTS[name].environment
    swept = [f for f in settings_of(cls, but=()) if not f.metadata["static"]]
    others = {f.name: other_value(f) for f in swept}
    made = [cls(), cls(**others), *(cls(**{name: value}) for name, value in others.items())]
    keys, actions = lifetimes(cls())[1], playing.some_actions(cls().spec.actions.n)
    playing.play(cls())  # compiles, unless another test has
    before = len(TRACES)
    for environment in made:
        lanes = jax.tree.map(lambda leaf: np.stack([leaf] * LANES), as_arrays(environment))
        jax.block_until_ready(together(lanes, keys, actions))
    assert len(TRACES) == before
    assert len(made) == 2 + len(swept)


@every_played_environment
def test_digest_tells_settings_and_versions_apart(name, monkeypatch):
    cls = ENVIRONMENTS[name].environment
    fields = settings_of(cls, but=cls.aside)
    texts = [name, *(f"{name}({f.name}={str(other_value(f)).lower()})" for f in fields)]
    digests = [problem(text).digest for text in texts]
    assert digests == [problem(text).digest for text in texts]
    monkeypatch.setattr(cls, "version", cls.version + 1)
    digests.append(problem(name).digest)
    assert len(set(digests)) == len(fields) + 2


@every_environment
def test_label_of_settings_is_read_back(name):
    cls = ENVIRONMENTS[name].environment
    fields = settings_of(cls, but=cls.aside)
    text = f"{name}({', '.join(f'{f.name} = {str(other_value(f)).lower()}' for f in fields)})"
    found = problem(text)
    assert found.short_name == text.replace(" ", "")
    again = problem(found.short_name)
    assert again == found
    assert_equal(again.environment, found.environment)
