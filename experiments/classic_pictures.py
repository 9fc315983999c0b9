"""Draw solved episodes of cart-pole, acrobot and pinball, for their pages.

python experiments/classic_pictures.py [--out docs/_static]

Policies are written by hand: a linear one balances the pole, one that pushes where the second link
swings lifts the acrobot, and one that steers to a list of places rolls the ball to the target.
Physics are the middles of their ranges. Balls without friction show the collisions alone.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax import lax

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jbrl.environments.acrobot import Acrobot  # noqa: E402
from jbrl.environments.cartpole import CartPole  # noqa: E402
from jbrl.environments.environment import as_arrays, drawn  # noqa: E402
from jbrl.environments.pinball import Ball, Pinball, PinballState  # noqa: E402
from jbrl.environments.pinball_map import MAPS, read_map  # noqa: E402

KEY = jax.random.key(0)
ROUTES = {  # places on the way to the target
    "empty": [(0.9, 0.2)],
    "box": [(0.7, 0.6), (0.9, 0.2)],
    "medium": [(0.75, 0.85), (0.85, 0.5), (0.9, 0.2)],
    "single": [
        *((0.25, 0.745), (0.42, 0.735), (0.57, 0.68), (0.57, 0.38), (0.66, 0.3)),
        *((0.78, 0.29), (0.9, 0.2)),
    ],
}


def played(environment: Any, policy: Callable, memory: Any, steps: int) -> Any:
    """Observations before and after each step of one episode, and the last step's number."""

    def step(carry: Any, key: Any) -> Any:
        state, observation, memory = carry
        action, memory = policy(observation, memory)
        state, found = environment.step(key, state, action)
        return (state, found.observation, memory), (found.observation, found.terminated)

    state, first = environment.reset(KEY)
    _, (after, ended) = jax.jit(
        lambda: lax.scan(step, (state, first, memory), jax.random.split(KEY, steps))
    )()
    last = int(np.argmax(np.asarray(ended))) + 1 if np.asarray(ended).any() else steps
    return np.vstack([np.asarray(first)[None], np.asarray(after)[:last]])


def balance(observation: Any, memory: Any) -> Any:
    """Push where the pole falls, and where the cart has to be caught."""
    x, x_dot, theta, theta_dot = observation
    return ((0.5 * x + x_dot + 20 * theta + 4 * theta_dot) > 0).astype(jnp.int32), memory


def swing(observation: Any, memory: Any) -> Any:
    """Push where the second link swings: the torque then always does work."""
    return jnp.where(observation[3] >= 0, jnp.int32(2), jnp.int32(0)), memory


def steer(route: list[tuple[float, float]], force: float) -> Callable:
    """Return a policy that steers to each place of a route, one after the other."""
    places = jnp.asarray(route, jnp.float32)

    def policy(observation: Any, number: Any) -> Any:
        way = places[number] - observation[:2]
        arrived = (jnp.hypot(way[0], way[1]) < 0.05) & (number < len(route) - 1)
        number = number + arrived.astype(jnp.int32)
        wrong = jnp.clip(8 * (places[number] - observation[:2]), -1, 1) - observation[2:]
        along_x = jnp.where(wrong[0] > 0, jnp.int32(0), jnp.int32(2))
        along_y = jnp.where(wrong[1] > 0, jnp.int32(3), jnp.int32(1))
        first = jnp.abs(wrong[0]) > jnp.abs(wrong[1])
        action = jnp.where(first, along_x, along_y)
        return jnp.where(jnp.abs(wrong).max() > force / 2, action, jnp.int32(4)), number

    return policy


def guess(observation: Any, key: Any) -> Any:
    """Push one way or the other at random."""
    del observation
    key, own = jax.random.split(key)
    return jax.random.bernoulli(own).astype(jnp.int32), key


def draw_cart_pole(path: Path) -> None:
    """Draw the angle and the position of 20 drawn carts with random pushes, and a balanced pole."""
    figure, axes = plt.subplots(2, 1, figsize=(8, 3.6), sharex=True, layout="constrained")
    carts = [
        played(drawn(as_arrays(CartPole()), key), guess, key, 200)
        for key in jax.random.split(KEY, 20)
    ]
    balanced = played(as_arrays(CartPole(spread=0.0)), balance, jnp.int32(0), 1000)
    print(f"cart-pole: {len(balanced) - 1} steps; at random {sorted(map(len, carts))}")
    for axis, column, name, limit in (
        (axes[0], 2, "θ (rad)", np.pi / 15),
        (axes[1], 0, "x (m)", 2.4),
    ):
        for log in carts:
            axis.plot(0.02 * np.arange(len(log)), log[:, column], lw=0.8, color="tab:orange")
        axis.plot(0.02 * np.arange(len(balanced)), balanced[:, column], lw=1, color="tab:blue")
        for sign in (-1, 1):
            axis.axhline(sign * limit, color="0.5", ls="--", lw=0.8)
        axis.set_ylabel(name)
        axis.set_xlim(0, 2)
    axes[1].set_xlabel("seconds")
    figure.savefig(path, dpi=120)


def draw_acrobot(path: Path) -> None:
    """Draw both links in every third step of an episode, and the height of the end."""
    log = played(as_arrays(Acrobot(spread=0.0)), swing, jnp.int32(0), 2001)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(8, 3.4), width_ratios=(1, 1.6), layout="constrained"
    )
    elbow = np.stack([np.sin(log[:, 0]), -np.cos(log[:, 0])], 1)
    both = log[:, 0] + log[:, 1]
    hand = elbow + np.stack([np.sin(both), -np.cos(both)], 1)
    shades = plt.get_cmap("viridis")(np.linspace(0, 1, len(log)))
    for t in range(max(0, len(log) - 25), len(log)):
        left.plot(*np.stack([[0, 0], elbow[t], hand[t]]).T, color=shades[t], lw=1)
    left.axhline(1, color="0.5", ls="--", lw=0.8)
    left.set(aspect="equal", xlim=(-2.1, 2.1), ylim=(-2.1, 2.1), title="the last five seconds")
    right.plot(0.2 * np.arange(len(log)), hand[:, 1], lw=1)
    right.axhline(1, color="0.5", ls="--", lw=0.8)
    right.set(xlabel="seconds", ylabel="height of the end")
    print(f"acrobot: {len(log) - 1} steps")
    figure.savefig(path, dpi=120)


def free_ball(name: str, angle: float, steps: int) -> np.ndarray:
    """Places of a ball without friction and actions, in each substep, [n, 2]."""
    still = as_arrays(Pinball(map=name, spread=0.0, noise=0.0, friction=0.0, force=0.0))
    speed = np.float32(1.9)
    velocity = speed * np.cos(angle), speed * np.sin(angle)
    ball = Ball(*map(np.float32, (0.2, 0.9, *velocity)))

    def step(state: Any, _: Any) -> Any:
        state, found = still.step(KEY, state, jnp.int32(4))
        return state, found.observation[:2]

    first = PinballState(ball, jnp.int32(0))
    return np.asarray(jax.jit(lambda: lax.scan(step, first, length=steps))()[1])


def draw_pinball(path: Path) -> None:
    """Draw the four maps, balls without friction above, a solved episode below."""
    figure, axes = plt.subplots(2, 4, figsize=(12, 6.2), layout="constrained")
    for column, name in enumerate(MAPS):
        found = read_map(name)
        for axis in axes[:, column]:
            for polygon in found.polygons:
                axis.fill(*polygon.T, color="0.7", ec="0.3", lw=0.5)
            axis.add_patch(plt.Circle(found.target, found.target_radius, color="tab:green"))
            axis.set(aspect="equal", xlim=(0, 1), ylim=(0, 1), xticks=(), yticks=())
        axes[0, column].set_title(name)
        for angle in (-0.5, -1.2, -2.2):
            axes[0, column].plot(*free_ball(name, angle, 125).T, lw=0.8)
        environment = as_arrays(Pinball(map=name, spread=0.0))
        log = played(environment, steer(ROUTES[name], 0.2), jnp.int32(0), 1001)
        axes[1, column].plot(*log[:, :2].T, lw=0.8, marker=".", ms=2)
        print(f"pinball, {name}: {len(log) - 1} steps")
    axes[0, 0].set_ylabel("no friction, no actions")
    axes[1, 0].set_ylabel("a solved episode")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "_static")
    out = parser.parse_args().out
    draw_cart_pole(out / "cart-pole.png")
    draw_acrobot(out / "acrobot.png")
    draw_pinball(out / "pinball-maps.png")


if __name__ == "__main__":
    main()
