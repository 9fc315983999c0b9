"""Draw solved episodes of the environments of Jordan et al. 2020, for their pages.

python experiments/classic_pictures.py [--out docs/_static]

Chain-10s, Gridworld-10s and MountainCar are solved by agents that learn: Q-learning, Sarsa and
Sarsa-Parl2, 100 episodes each, in environment 0 of seed 0.

For the others, policies are written by hand: a linear one balances the pole, one that pushes where
the second link swings lifts the acrobot, and one that steers to a list of places rolls the ball to
the target. Physics are the middles of their ranges. Balls without friction show the collisions
alone.
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
from matplotlib.patches import Circle, Rectangle

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jbrl.agents.linear.action_values import QLearning, Sarsa, SarsaParl2  # noqa: E402
from jbrl.base.pytree import record, static  # noqa: E402
from jbrl.environments.acrobot import Acrobot  # noqa: E402
from jbrl.environments.cartpole import CartPole  # noqa: E402
from jbrl.environments.environment import as_arrays, drawn  # noqa: E402
from jbrl.environments.pinball import MAPS, Ball, Pinball, PinballState, read_map  # noqa: E402
from jbrl.environments.spec import Episodes  # noqa: E402
from jbrl.problems.lookup import problem  # noqa: E402
from jbrl.report.axes import COLOURS, FAINT, INK, LOOK  # noqa: E402
from jbrl.rollout.contract import Agent  # noqa: E402
from jbrl.rollout.episodes import Lane, Rules, play_lifetime  # noqa: E402

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


EPISODES = 100  # of a lifetime
LONGEST = 100_000  # steps of a lifetime that are kept
LEARNERS = {  # problem: agent
    "Chain-10s": QLearning(alpha=0.3, epsilon=0.0, gamma=1.0),
    "Gridworld-10s": Sarsa(alpha=0.2, epsilon=0.0, gamma=1.0),
    "MountainCar": SarsaParl2(
        **{
            f"{name}_{end}": value  # nothing is drawn
            for name, value in (
                *(("dependent", 3), ("independent", 3), ("gamma_gap", 1e-4)),
                *(("lambda", 0.9), ("epsilon", 0.0)),
            )
            for end in ("low", "high")
        }
    ),
}


@record
class Trail:
    """Recorder that keeps the observation after each step, and whether an episode ended there."""

    steps: int = static(default=LONGEST)

    def begin(self, environment: Any, state: Any) -> tuple[Any, ...]:
        del state
        seen = jax.eval_shape(lambda: environment.reset(KEY)[1])
        kept = jnp.zeros((self.steps, *seen.shape), seen.dtype)
        return jnp.int32(0), kept, jnp.zeros(self.steps, bool)

    def record(self, state: Any, environment: Any, after: Any, step: Any) -> tuple[Any, ...]:
        del environment, after
        taken, kept, ended = state
        return (
            taken + 1,
            kept.at[taken].set(step.observation),
            ended.at[taken].set(step.terminated),
        )


def learned(name: str, agent: Agent) -> tuple[list[np.ndarray], Lane]:
    """Play a lifetime: the observations of each episode, first and last included, and how it
    ended.
    """
    found: Any = problem(name)
    lifetime = Episodes(EPISODES)
    knowledge = agent.train(KEY, found.prior(lifetime, 1.0))
    rules = Rules(agent, found.environment, Trail(), found.key(0), lifetime)
    lane = jax.jit(play_lifetime)(rules, knowledge, jnp.int32(0))
    taken, kept, ended = jax.tree.map(np.asarray, lane.recorder)
    assert taken <= LONGEST
    first = np.asarray(found.environment.reset(KEY)[1])[None]
    parts = np.split(kept[:taken], np.flatnonzero(ended[:taken]) + 1)[:EPISODES]
    episodes = [np.concatenate([first, part]) for part in parts]
    print(f"{name}: {len(episodes[0]) - 1} steps at first, {len(episodes[-1]) - 1} in the end")
    return episodes, lane


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


def draw_lengths(axis: Any, episodes: list[np.ndarray]) -> None:
    """Draw the number of steps of each episode."""
    lengths = [len(episode) - 1 for episode in episodes]
    numbers = np.arange(1, len(lengths) + 1)
    axis.plot(numbers, lengths, color=INK, lw=0.8)
    for place, colour in ((0, COLOURS[1]), (-1, COLOURS[0])):
        axis.plot(numbers[place], lengths[place], "o", color=colour, ms=5, clip_on=False)
    axis.set(xlabel="episode", ylabel="steps", xlim=(0, len(lengths)))


def draw_chain(path: Path) -> None:
    """Draw the state at each step of the first and the last episode, and the number of steps."""
    episodes, _ = learned("Chain-10s", LEARNERS["Chain-10s"])
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(8, 2.9), width_ratios=(1.5, 1), layout="constrained"
    )
    left.axhline(9, color=FAINT, ls="--", lw=0.8)
    for place, name, colour in ((0, "first", COLOURS[1]), (-1, "last", COLOURS[0])):
        episode = episodes[place]
        left.plot(episode, color=colour, lw=1.2, marker="o", ms=3)
        left.text(len(episode) - 1, 9.3, f"{name} episode", ha="center", color=colour)
    left.set(xlabel="step", ylabel="state", yticks=range(10), ylim=(-0.3, 9.8), xlim=(0, None))
    draw_lengths(right, episodes)
    right.axhline(9, color=FAINT, ls="--", lw=0.8)
    right.set_ylim(0, None)
    figure.savefig(path, dpi=120)


def draw_square(axis: Any, size: int) -> None:
    """Draw an empty gridworld: start, goal and the lines between cells."""
    for line in np.arange(size + 1) - 0.5:
        axis.plot((-0.5, size - 0.5), (line, line), color=FAINT, lw=0.4)
        axis.plot((line, line), (-0.5, size - 0.5), color=FAINT, lw=0.4)
    axis.add_patch(Rectangle((-0.5, -0.5), 1, 1, color=COLOURS[4], alpha=0.5, lw=0))
    axis.add_patch(Rectangle((size - 1.5, size - 1.5), 1, 1, color=COLOURS[2], alpha=0.5, lw=0))
    for place, letter in ((0, "S"), (size - 1, "G")):
        axis.text(place - 0.3, place - 0.3, letter, size=7, weight="bold", ha="center", va="center")
    axis.set(aspect="equal", xlim=(-0.6, size - 0.4), ylim=(size - 0.4, -0.6))
    axis.set(xticks=(0, size - 1), yticks=(0, size - 1), xlabel="y", ylabel="x")
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)


def draw_gridworld(path: Path) -> None:
    """Draw the paths of the first and the last episode, greedy actions and the number of steps."""
    episodes, lane = learned("Gridworld-10s", LEARNERS["Gridworld-10s"])
    figure, axes = plt.subplots(
        1, 3, figsize=(8.6, 3.2), width_ratios=(1, 1, 0.85), layout="constrained"
    )
    figure.set_layout_engine("constrained", h_pad=0.08)
    for axis, place, title, colour in (
        (axes[0], 0, "first episode", COLOURS[1]),
        (axes[1], -1, "last episode, learned policy", COLOURS[0]),
    ):
        draw_square(axis, 10)
        axis.set_title(title, fontsize=9.6)
        x, y = np.divmod(episodes[place], 10)
        wobble = np.random.default_rng(0).uniform(-0.2, 0.2, (2, len(x))) * (place == 0)
        axis.plot(y + wobble[0], x + wobble[1], color=colour, lw=0.7 if place == 0 else 2)
    visited = np.unique(np.concatenate([episode[:-1] for episode in episodes[-20:]]))
    action = np.asarray(lane.agent.q).reshape(100, 4).argmax(1)[visited]
    across, down = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])[action].T * 0.5
    axes[1].quiver(
        visited % 10 - across / 2, visited // 10 - down / 2, across, down,
        angles="xy", scale_units="xy", scale=1, color=INK, width=0.006, zorder=3,
    )  # fmt: skip
    draw_lengths(axes[2], episodes)
    axes[2].axhline(18, color=FAINT, ls="--", lw=0.8)
    axes[2].set_yscale("log")
    axes[2].set_yticks((20, 50, 100, 200, 500), ("20", "50", "100", "200", "500"))
    axes[2].minorticks_off()
    figure.savefig(path, dpi=120)


def draw_mountain_car(path: Path) -> None:
    """Draw position and velocity in the first and the last episode, above the slope, and the
    position at each step.
    """
    episodes, _ = learned("MountainCar", LEARNERS["MountainCar"])
    figure, axes = plt.subplot_mosaic(
        [["plane", "first"], ["plane", "last"], ["slope", "lengths"]],
        figsize=(8, 5), layout="constrained",
    )  # fmt: skip
    for place, name, colour in ((0, "first", COLOURS[1]), (-1, "last", COLOURS[0])):
        position, velocity = episodes[place].T
        width = 0.7 if place == 0 else 1.4
        axes["plane"].plot(position, velocity, color=colour, lw=width)
        axes[name].plot(position, color=colour, lw=width)
        axes[name].axhline(0.5, color=FAINT, ls="--", lw=0.8)
        axes[name].set(xlim=(0, None), ylim=(-1.25, 0.62), ylabel="position")
        axes[name].set_title(f"{name} episode", fontsize=9.6, color=colour)
    axes["plane"].axvline(0.5, color=FAINT, ls="--", lw=0.8)
    axes["plane"].set_ylabel("velocity")
    x = np.linspace(-1.2, 0.6, 200)
    axes["slope"].plot(x, np.sin(3 * x), color=INK, lw=1)
    last = episodes[-1][:, 0]
    axes["slope"].scatter(last, np.sin(3 * last), s=9, c=np.arange(len(last)), cmap="viridis")
    axes["slope"].axvline(0.5, color=FAINT, ls="--", lw=0.8)
    axes["slope"].set(xlabel="position x", ylabel="sin 3x")
    for name in ("plane", "slope"):
        axes[name].set(xlim=(-1.25, 0.65), xticks=(-1, -0.5, 0, 0.5))
    axes["last"].set_xlabel("step")
    draw_lengths(axes["lengths"], episodes)
    axes["lengths"].set_ylim(0, None)
    figure.savefig(path, dpi=120)


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
            axis.add_patch(Circle(found.target, found.target_radius, color="tab:green"))
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


def main(arguments: list[str] | None = None) -> None:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "_static")
    out = parser.parse_args(arguments).out
    out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(LOOK):
        draw_chain(out / "chain.png")
        draw_gridworld(out / "gridworld.png")
        draw_mountain_car(out / "mountain-car.png")
    draw_cart_pole(out / "cart-pole.png")
    draw_acrobot(out / "acrobot.png")
    draw_pinball(out / "pinball-maps.png")


if __name__ == "__main__":
    main()
