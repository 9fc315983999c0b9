"""Every trajectory of the original, replayed; and the recorder on the same trajectories."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.base.bsuite_sweep import logged_episodes
from jbrl.environments import bsuite_cartpole as carts
from jbrl.environments import bsuite_tasks
from jbrl.environments.bsuite_cartpole import BsuiteCartPole, BsuiteCartPoleSwingup
from jbrl.environments.environment import Step, as_arrays
from jbrl.environments.images import ImageBandit, ImageBanditState
from jbrl.environments.mountain_car import BsuiteMountainCar, MountainCarState
from jbrl.problems.recorder import BsuiteLog

DATA = Path(__file__).parent / "data" / "bsuite"
FILES = sorted(path.stem for path in DATA.glob("*.npz"))
COLUMNS = {
    "bandit": ("total_regret",),
    "cartpole": ("raw_return", "best_episode"),
    "cartpole_swingup": ("raw_return", "total_upright", "best_episode"),
    "catch": ("total_regret",),
    "discounting_chain": (),
    "memory_chain": ("total_perfect", "total_regret"),
    "mnist_digits": ("total_regret",),
    "mountain_car": ("raw_return",),
    "umbrella_chain": ("total_regret",),
}


@functools.cache
def loaded(file):
    data = dict(np.load(DATA / f"{file}.npz"))
    return json.loads(str(data["cases"])), data


def recorded(file, i):
    cases, data = loaded(file)
    prefix = f"c{i}_"
    return cases[i], {k.removeprefix(prefix): v for k, v in data.items() if k.startswith(prefix)}


@functools.cache
def longest(file):
    """Steps of the longest case: all are played at this length, and share compiled programs."""
    cases, data = loaded(file)
    return max(len(data[f"c{i}_actions"]) for i in range(len(cases)))


def lengthened(values, by):
    """An array with its last row repeated `by` times more."""
    values = np.asarray(values)
    return np.concatenate([values, np.repeat(values[-1:], by, 0)])


CASES = [(file, i) for file in FILES for i in range(len(loaded(file)[0]))]


def whole(values):
    return np.asarray(values, np.int32)


# For each family the environment of a case and its states after each call, by what was recorded.


def bandit(case, found):
    environment = bsuite_tasks.Bandit(mapping_seed=case["mapping_seed"])
    np.testing.assert_array_equal(environment.arms, found["arm_rewards"].astype(np.float32))
    return environment, bsuite_tasks.BanditState(np.zeros(len(found["step_type"]), np.float32))


def catch(case, found):
    environment = bsuite_tasks.Catch(case["rows"], case["columns"])
    parts = ("hid_ball_x", "hid_ball_y", "hid_paddle_x")
    return environment, bsuite_tasks.CatchState(*(whole(found[part]) for part in parts))


def discounting_chain(case, found):
    chain, steps = (whole(found[f"hid_{name}"]) for name in ("context", "timestep"))
    return bsuite_tasks.DiscountingChain(case["mapping_seed"]), bsuite_tasks.DiscountingChainState(
        chain, steps
    )


def memory_chain(case, found):
    context = found["hid_context"].astype(np.uint32)
    count = -(-context.shape[1] // 32)
    words = np.zeros((len(context), count), np.uint32)
    for bit in range(context.shape[1]):
        words[:, bit // 32] |= context[:, bit] << np.uint32(bit % 32)
    query, steps = (whole(found[f"hid_{name}"]) for name in ("query", "timestep"))
    right = np.zeros(len(query), bool)
    environment = bsuite_tasks.MemoryChain(case["memory_length"], case["num_bits"])
    return environment, bsuite_tasks.MemoryChainState(words, query, steps, right)


def umbrella_chain(case, found):
    need, have = (whole(found[f"hid_{name}_umbrella"]) for name in ("need", "has"))
    environment = bsuite_tasks.UmbrellaChain(case["chain_length"], case["n_distractor"])
    return environment, bsuite_tasks.UmbrellaChainState(need, have, whole(found["hid_timestep"]))


def mnist_digits(case, found):
    environment = ImageBandit(fraction=case["fraction"])
    assert len(environment.pixels) == case["num_data"]
    index = np.maximum(found["image_index"], 0)
    begun = found["step_type"] == 0
    np.testing.assert_array_equal(environment.labels[index][begun], found["hid_label"][begun])
    label = whole(np.maximum(found["hid_label"], 0))
    return environment, ImageBanditState(label, np.zeros(len(label), np.float32))


def mountain_car(case, found):
    position, velocity, steps = found["hid_state"].T.astype(np.float32)
    environment = BsuiteMountainCar(case["max_steps"])
    return environment, MountainCarState(position, velocity, whole(np.rint(steps)))


def physics(found):
    x, x_dot, theta, theta_dot, time = found["hid_state"].T.astype(np.float32)
    return carts.CartPole(x, x_dot, theta, theta_dot, whole(np.rint(time / 0.01)))


def cartpole(case, found):
    earned = np.zeros(len(found["step_type"]), np.float32)
    return BsuiteCartPole(**case["kwargs"]), carts.BsuiteCartPoleState(physics(found), earned)


def cartpole_swingup(case, found):
    zero = np.zeros(len(found["step_type"]), np.int32)
    return BsuiteCartPoleSwingup(**case["kwargs"]), carts.SwingupState(physics(found), zero, zero)


MADE = (bandit, cartpole, cartpole_swingup, catch, discounting_chain, memory_chain, mnist_digits)
FAMILIES = {made.__name__: made for made in (*MADE, mountain_car, umbrella_chain)}
# Physics in float32: single steps from the recorded states; long ones drift. All else is replayed
# from the first state of each episode alone.
FORCED = {"cartpole", "cartpole_swingup", "mountain_car"}


def shown(environment, state, found, t):
    """First observation of an episode in a given state."""
    if isinstance(environment, bsuite_tasks.Bandit):
        return jnp.ones(1)
    if isinstance(environment, bsuite_tasks.Catch):
        return environment._board(state)
    if isinstance(environment, bsuite_tasks.DiscountingChain):
        return environment.step(None, state, jnp.int32(0))[1].observation * 0 + jnp.array(
            [-1.0, 0.0]
        )
    if isinstance(environment, bsuite_tasks.UmbrellaChain):
        return environment._observation(state, found["bits"][t])
    if isinstance(environment, ImageBandit):
        return environment._shown(jnp.asarray(environment.pixels)[found["index"][t]])
    if isinstance(environment, BsuiteCartPole | BsuiteCartPoleSwingup):
        return environment._observation(state.physics, jnp.cos(state.physics.theta))
    return environment._observation(state)


def draws(file, case, found):
    """Return the draws of the original, in the place of keys: [T + 1, …]."""
    if file != "umbrella_chain":
        return np.zeros((len(found["step_type"]), 1), np.int32)
    good = np.concatenate([[0], np.nan_to_num(found["reward"])]) > 0
    distractors = whole(found["obs"][:, 0, 3:])
    return np.concatenate([whole(good)[:, None], 0 * whole(good)[:, None], distractors], 1)


@functools.partial(jax.jit, static_argnums=(0, 1))
def replayed(forced, recorder, environment, states, bits, aux, actions, step_type, keyed, extra):
    """Steps of a whole recording, and the rows of its log."""

    def one(carry, t):
        state, log = carry
        if forced:
            kept = jax.tree.map(lambda v: v[t], states)
            state = counted(kept, state)
        after, step = environment.step(keyed[t + 1], state, actions[t])
        first = step_type[t + 1] == 0
        begun = jax.tree.map(lambda v: v[t + 1], states)
        opening = shown(environment, begun, aux, t + 1)
        step = Step(
            step.observation, step.reward * extra[0] + extra[1 + t], step.terminated, step.truncated
        )
        log = recorder.record_if(~first, log, environment, after, step)
        state = jax.tree.map(lambda new, old: jnp.where(first, new, old), begun, after)
        ended = step.terminated & ~first
        seen = jnp.where(first, opening, step.observation)
        return (state, log), (seen, step.reward, ended, after)

    start = jax.tree.map(lambda v: v[0], states)
    log = recorder.begin(environment, start)
    (_, log), out = jax.lax.scan(one, (start, log), jnp.arange(len(actions)))
    return out, log


def counted(kept, state):
    """The recorded physics with what the episode has brought so far."""
    if isinstance(state, carts.BsuiteCartPoleState):
        return carts.BsuiteCartPoleState(kept.physics, state.earned)
    if isinstance(state, carts.SwingupState):
        return carts.SwingupState(kept.physics, state.upright, state.moves)
    return kept


@pytest.mark.parametrize(
    ("file", "i"),
    [pytest.param(file, i, marks=pytest.mark.slow if i > 1 else ()) for file, i in CASES],
    ids=str,
)
def test_trajectories_and_logs_are_those_of_the_original(file, i, monkeypatch):
    monkeypatch.setattr(bsuite_tasks, "_random_bits", lambda key, n: key)
    case, found = recorded(file, i)
    environment, states = FAMILIES[file](case, found)
    steps = found["actions"].astype(np.int32)
    bits = draws(file, case, found)
    aux = {"bits": bits[:, 2:], "index": np.maximum(found.get("image_index", bits[:, 0]), 0)}
    # Noise and scale are applied as `test_wrappers` shows that the wrappers do.
    noisy, scaled = (case.get("wrapper") == kind for kind in ("noise", "scale"))
    noise = (
        np.nan_to_num(found["noise_std_normal"]) * case["wrapper_value"] if noisy else 0.0 * steps
    )
    factor = [case["wrapper_value"] if scaled else 1.0]
    extra = np.concatenate([factor, noise]).astype(np.float32)
    recorder = BsuiteLog(COLUMNS[file])
    series = (states, bits, aux, steps, found["step_type"], bits, extra)
    padded = jax.tree.map(lambda v: lengthened(v, longest(file) - len(steps)), series)
    padded[4][len(steps) + 1 :] = 0  # resets, which are not recorded
    out, log = replayed(file in FORCED, recorder, as_arrays(environment), *padded)
    observation, reward, ended, after = jax.tree.map(lambda v: np.asarray(v)[: len(steps)], out)

    tolerance = 2e-5 if file in FORCED else 1e-6
    close = {"rtol": tolerance, "atol": tolerance}
    first = found["step_type"][1:] == 0
    wanted = found["obs"][1:].reshape(np.shape(observation))
    np.testing.assert_allclose(observation, wanted, **close)
    np.testing.assert_allclose(
        np.asarray(reward)[~first], found["reward"][~first], rtol=1e-5, atol=2e-6
    )
    np.testing.assert_array_equal(ended, found["step_type"][1:] == 2)
    # Trap a: running out of time is a termination, with discount 0 like any other end.
    np.testing.assert_array_equal(
        found["discount"][~first], np.where(found["step_type"][1:] == 2, 0, 1)[~first]
    )
    if file in FORCED and file != "mountain_car":
        after = after.physics
    if file in FORCED:
        names = (
            ("position", "velocity")
            if file == "mountain_car"
            else ("x", "x_dot", "theta", "theta_dot")
        )
        computed = np.stack([np.asarray(getattr(after, name)) for name in names], 1)
        np.testing.assert_allclose(
            computed[~first], found["hid_state"][1:, : len(names)][~first], **close
        )
    check_rows(
        recorder.metrics(jax.tree.map(lambda v: np.asarray(v)[None], log)), found, COLUMNS[file]
    )


def check_rows(rows, found, columns):
    """Compare the log with what the original's columns were at the ends of the
    scheduled episodes.
    """
    ends = np.flatnonzero(found["step_type"] == 2)
    scheduled = [n for n in logged_episodes(10**4) if n <= len(ends)]
    at = ends[np.array(scheduled, int) - 1]
    n = len(scheduled)
    count = np.cumsum(found["step_type"] != 0)
    rewards = np.concatenate([[0], np.nan_to_num(found["reward"])])
    total = np.cumsum(rewards)[at]
    begins = np.array([np.flatnonzero(found["step_type"][: t + 1] == 0)[-1] for t in at], int)
    wanted = {
        "steps": count[at],
        "episode": np.array(scheduled),
        "total_return": total,
        "episode_len": at - begins,
        "episode_return": [rewards[b : t + 1].sum() for b, t in zip(begins, at, strict=True)],
        **{name: found[f"info_{name}"][at] for name in columns},
    }
    for name, values in wanted.items():
        got = rows[f"log_{name}"][0]
        np.testing.assert_allclose(got[:n], values, rtol=1e-5, atol=1e-5, err_msg=name)
        assert np.isnan(got[n:]).all()
    assert {f"log_{name}" for name in wanted} == set(rows)


def test_arms_are_those_of_the_original():
    _, data = loaded("bandit")
    for seed, arms in enumerate(data["sweep_arm_rewards"]):
        np.testing.assert_array_equal(bsuite_tasks.arm_rewards(11, seed), arms.astype(np.float32))


def test_single_steps_of_cart_and_car_are_those_of_the_original():
    _, data = loaded("cartpole")
    x, x_dot, theta, theta_dot, _ = data["onestep_state"].T.astype(np.float32)
    state = carts.CartPole(x, x_dot, theta, theta_dot, np.zeros(len(x), np.int32))
    after = jax.jit(jax.vmap(carts.move))(state, data["onestep_action"])
    got = np.stack([after.x, after.x_dot, after.theta, after.theta_dot], 1).astype(np.float64)
    wanted = data["onestep_next_state"][:, :4]
    got[:, 2] += (
        np.round((wanted[:, 2] - got[:, 2]) / (2 * np.pi)) * 2 * np.pi
    )  # 0 and 2π are the same
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)

    _, data = loaded("mountain_car")
    position, velocity, steps = data["onestep_state"].T.astype(np.float32)
    state = MountainCarState(position, velocity, whole(np.rint(steps)))
    environment = as_arrays(BsuiteMountainCar())
    move = jax.jit(jax.vmap(lambda s, a: environment.step(None, s, a)))
    after, step = move(state, data["onestep_action"])
    wanted = data["onestep_next_state"]
    np.testing.assert_allclose(after.position, wanted[:, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after.velocity, wanted[:, 1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(after.steps, wanted[:, 2])
    np.testing.assert_array_equal(step.terminated, data["onestep_last"] == 1)
    np.testing.assert_array_equal(step.reward, -1)


def test_bits_beyond_those_of_a_key_have_words_of_their_own():
    bits = np.asarray(bsuite_tasks._random_bits(jax.random.key(3), 102))
    words = [tuple(bits[k : k + 32]) for k in range(0, 96, 32)]
    assert bits.shape == (102,) and len(set(words)) == 3 and set(bits.tolist()) == {0, 1}
