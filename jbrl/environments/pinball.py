"""Pinball: a ball that bounces off polygons on its way to a target.

Maps are JSON files:

    {
      "start": [x, y],
      "target": [x, y, radius],
      "ball": radius,
      "polygons": [[[x, y], [x, y], [x, y], …], …]     at least three points each
    }

The points of a polygon do not all lie on one line. All numbers are between -1000 and 1000. Other
fields are refused.
"""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jbrl import vectorize
from jbrl.base.errors import JbrlError, nearest, shown
from jbrl.base.files import read_object
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, select
from jbrl.environments.environment import Environment, Perturbed, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, Spec
from jbrl.mdp import sampling

MAPS = ("empty", "box", "medium", "single")  # of Jordan et al. 2020
FIELDS = ("start", "target", "ball", "polygons")
GREATEST = 1000.0  # of coordinates and radii


class Map(NamedTuple):
    """A map on the host, checked."""

    start: np.ndarray  # [2] float32
    target: np.ndarray  # [2] float32
    target_radius: np.float32
    ball: np.float32  # radius
    # [5, E] float32, edges of all polygons: first point x, y; way to the second one x, y;
    # 1 / length²
    edges: np.ndarray
    # [5, E] float32, contribution of each edge to what a collision does: 1; cosine and sine of
    # twice the edge's angle; number of its polygon, and the square of that
    effects: np.ndarray
    polygons: tuple[np.ndarray, ...]  # [points, 2] float64 each


def read_map(name: str) -> Map:
    """Read one of `MAPS`, or a file that ends in .json.

    Raises:
      JbrlError: no such map, or the file cannot be read or is not sound.
    """
    path = Path(name)
    if name in MAPS:
        path = Path(__file__).parent / "data" / "pinball" / f"{name}.json"
    elif path.suffix.casefold() != ".json":
        raise JbrlError(
            f"map = '{shown(name, str)}': unknown map{nearest(name, MAPS)}; the path of a map's "
            "file ends in .json"
        )
    where, data = name, read_object(path, FIELDS)
    start = _numbers(data["start"], 2, f"{where}: start")
    target = _numbers(data["target"], 3, f"{where}: target")
    polygons = data["polygons"]
    if not isinstance(polygons, list) or not polygons:
        raise JbrlError(
            f"{where}: polygons = {shown(polygons)}: expected a list of at least one polygon"
        )
    radii = target[2], _number(data["ball"], f"{where}: ball")
    for radius, field in zip(radii, ("target[2]", "ball"), strict=True):
        if not radius >= 1e-6:
            raise JbrlError(f"{where}: {field} = {radius:g}: expected a radius above 0")
    shapes = tuple(_polygon(p, f"{where}: polygons[{i}]") for i, p in enumerate(polygons))
    return Map(
        start.astype(np.float32),
        target[:2].astype(np.float32),
        np.float32(radii[0]),
        np.float32(radii[1]),
        *_edges(shapes),
        shapes,
    )


def _edges(polygons: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return `Map.edges` and `Map.effects`."""
    first = np.concatenate(polygons)
    way = np.concatenate([np.roll(polygon, -1, axis=0) for polygon in polygons]) - first
    sizes = [len(polygon) for polygon in polygons]
    number = np.repeat(np.arange(len(sizes)), sizes).astype(float)
    x, y, length = way[:, 0], way[:, 1], (way**2).sum(1)
    rows = [np.ones(len(way)), (x**2 - y**2) / length, 2 * x * y / length, number, number**2]
    edges = np.vstack([first.T, way.T, 1 / length])
    return edges.astype(np.float32), np.vstack(rows).astype(np.float32)


def _polygon(points: Any, where: str) -> np.ndarray:
    if not isinstance(points, list) or len(points) < 3:
        count = f"{len(points)} points" if isinstance(points, list) else shown(points)
        raise JbrlError(f"{where}: {count}: expected a list of at least three points [x, y]")
    corners = np.array([_numbers(p, 2, f"{where}[{i}]") for i, p in enumerate(points)])
    same = (np.abs(np.roll(corners, -1, axis=0) - corners) < 1e-6).all(axis=1)
    if same.any():
        i = int(np.flatnonzero(same)[0])
        raise JbrlError(
            f"{where}: points {i} and {(i + 1) % len(corners)} are the same: expected edges of a "
            "length above 0"
        )
    if np.linalg.svd(corners - corners.mean(0), compute_uv=False)[1] < 1e-6:
        raise JbrlError(f"{where}: all points lie on one line: expected points around an area")
    return corners


def _numbers(values: Any, count: int, where: str) -> np.ndarray:
    if not isinstance(values, list) or len(values) != count:
        raise JbrlError(f"{where} = {shown(values)}: expected a list of {count} numbers")
    return np.array([_number(v, f"{where}[{i}]") for i, v in enumerate(values)])


def _number(value: Any, where: str) -> float:
    # NaN is not within bounds
    if type(value) not in (int, float) or not -GREATEST <= value <= GREATEST:
        raise JbrlError(
            f"{where} = {shown(value)}: expected a number from {-GREATEST:g} to {GREATEST:g}"
        )
    return float(value)


SUBSTEPS, TAU = 20, 0.05  # of an action, and the time of each
EXTRA = 19  # number, from 1, of the substep in which a ball that hits one polygon moves twice
FASTEST = 2.0  # of either velocity, when an action changes it
INSIDE = 0.05  # distance from the border at which a ball that has left the map continues
GOAL, TIME, PUSH, NOTHING = 10_000.0, -1.0, -5.0, -1.0  # rewards
IDLE = 4  # action that changes no velocity
JITTER = 0.02  # standard deviation of each coordinate of a random start
# An edge is hit by a ball that moves towards it: the angle between the way to its nearest point and
# the velocity is at most π/1.99, so a ball that moves along it, or away by 0.45 degrees, hits too.
TOWARDS = float(np.cos(np.pi / 1.99) ** 2)
# half the width of each range, relative to its middle; friction: in powers of ten
SPREADS = {"ball": 0.1, "target_radius": 0.1, "noise": 1.0, "force": 0.5}
DECADES = 1.0


@record
class Ball:
    """Position and velocity of the ball."""

    x: Array  # [] float32
    y: Array  # [] float32
    x_dot: Array  # [] float32
    y_dot: Array  # [] float32


@record
class PinballState:
    """The ball, and steps of the episode."""

    ball: Ball
    steps: Array  # [] int32, of this episode


@record
class Contact:
    """Sums over the edges that the ball hits, of `Map.effects`."""

    edges: Array  # [] float32, their number
    cos: Array  # [] float32, cosine of twice the angle of an edge
    sin: Array  # [] float32
    polygons: Array  # [] float32, numbers of their polygons
    squares: Array  # [] float32, squares of these


@register_environment("Pinball", cite="jordan2020")
class Pinball(Environment[PinballState], Perturbed):
    """Pinball of Jordan et al. 2020: roll a ball past polygons into a target, with a ball, a target
    and forces drawn for each lifetime, for 10,000 at the target.

    Observation, [4]: position x, y in [0, 1], velocity x', y', nominally in [-2, 2]: a slanted edge
    makes up to 2 √2 of it. Actions 0 to 4: x' + f, y' - f, x' - f, y' + f, nothing; with a
    probability drawn for each lifetime one of the five, drawn uniformly, takes the action's place.
    Velocities are then clipped to [-2, 2]. An action lasts 20 substeps. In each the ball moves by
    0.05 x its velocity x its radius; if it hits one edge of one polygon, the velocity is mirrored
    at the edge; if it hits more than one edge, the velocity is reversed; a ball that hits one
    polygon in the 19th substep moves once more. After 20 substeps friction takes its part of the
    velocity, and a coordinate that lies outside [0, 1] becomes 0.05 or 0.95. An episode starts at
    rest at the map's start, or, with `random_start`, at a normal distance of 0.02 in each
    coordinate.

    Drawn for each lifetime: the radii of ball and target, uniformly within 10 % of the map's; the
    probability that an action is replaced, from 0 to 0.25; the force f from 0.1 to 0.3; the part
    of the velocity that friction takes, its logarithm uniform, from 0.001 to 0.1. The fields are
    the middles of these ranges; `spread` narrows all of them.

    Reward: 10,000 when the ball's centre is within the target's radius, which ends the episode at
    that substep; else -1 for action 4 and -5 for the others, by the action that is executed. After
    `max_steps` steps the episode terminates, with -1 for the last one, which has one substep: the
    time of the published program, a sum of 0.05 in float64, exceeds its limit of 1000 in substep
    20,001.

    `start`, `target`, `target_radius`, `ball`, `edges` and `effects` follow from `map` where they
    are None. The content of the map is part of what identifies a result; its name is not.

    Source: Jordan et al. 2020; the published program (ScottJordan/EvaluationOfRLAlgs), which
    follows that of RLPy; Konidaris and Barto 2009.

    Raises:
      JbrlError: `map` is neither the name of a map nor a file of one, or the file is not sound.
    """

    lifetime = Episodes(100)
    aside = ("map",)  # the other fields are its content

    map: str = parameter(
        "empty", "empty, box, medium or single, or the path of a map's file, which ends in .json"
    )
    force: float = parameter(
        0.2, "middle of the range of f, the change of a velocity by an action", low=0, high=2
    )
    noise: float = parameter(
        0.125, "middle of the range of the probability that an action is replaced", low=0, high=1
    )
    friction: float = parameter(
        0.01,
        "geometric middle of the range of the part of the velocity that a step takes",
        low=0,
        high=1,
    )
    spread: float = parameter(
        1.0,
        "width of the five ranges, relative to the published ones; 0: physics are the middles",
        low=0,
        high=1,
    )
    random_start: bool = parameter(
        False, "start each episode at a normal distance of 0.02 in each coordinate"
    )
    max_steps: int = parameter(1001, "steps after which an episode terminates", low=1, high=100_000)
    start: Any = None  # [2] float32
    target: Any = None  # [2] float32
    target_radius: Any = None  # [] float32
    ball: Any = None  # [] float32, radius
    edges: Any = None  # [5, E] float32, `Map.edges`
    effects: Any = None  # [5, E] float32, `Map.effects`

    def __post_init__(self) -> None:
        if self.edges is None and isinstance(self.force, int | float):  # not traced
            content = read_map(self.map)._asdict()
            del content["polygons"]
            for name, value in content.items():
                object.__setattr__(self, name, value)

    @property
    def spec(self) -> Spec:
        return Spec(Box((4,), (0.0, 0.0, -FASTEST, -FASTEST), (1.0, 1.0, FASTEST, FASTEST)), FIVE)

    @property
    def typical_steps(self) -> float:
        return float(self.max_steps)

    def perturb(self, key: Array) -> Self:
        *offsets, last = jax.random.uniform(key, (len(SPREADS) + 1,), minval=-1.0, maxval=1.0)
        power = jnp.float32(DECADES * np.log(10)) * self.spread * last
        friction: Any = self.friction * jnp.exp(power)
        return dataclasses.replace(self.moved(SPREADS, offsets), friction=friction)

    def reset(self, key: Array) -> tuple[PinballState, Array]:
        distance = jnp.float32(JITTER) * sampling.standard_normal(sampling.uniforms(key))
        place = self.start + jnp.where(self.random_start, distance, jnp.float32(0))
        ball = Ball(place[0], place[1], jnp.float32(0), jnp.float32(0))
        return PinballState(ball, jnp.int32(0)), _observation(ball)

    def step(self, key: Array, state: PinballState, action: Array) -> tuple[PinballState, Step]:
        chance, other = sampling.uniforms(key)
        executed = vectorize.prevent_fusion_index(
            jnp.where(chance < self.noise, sampling.uniform_index(other, FIVE.n), action)
        )
        steps = state.steps + 1
        out_of_time = steps >= self.max_steps
        pushed = _pushed(state.ball, executed, self.force)
        zero = jnp.bool_(False)
        rolled, arrived, stopped = lax.fori_loop(
            0, SUBSTEPS, lambda i, now: self._substep(i, now, out_of_time), (pushed, zero, zero)
        )
        ball = select(stopped, rolled, self._slowed(rolled))
        price = jnp.where(executed == IDLE, jnp.float32(NOTHING), jnp.float32(PUSH))
        end = jnp.where(arrived, jnp.float32(GOAL), jnp.float32(TIME))
        reward = jnp.where(stopped, end, price)
        return PinballState(ball, steps), Step(_observation(ball), reward, stopped)

    def _substep(
        self, i: Array, now: tuple[Ball, Array, Array], out_of_time: Array
    ) -> tuple[Ball, Array, Array]:
        """Return the ball after substep number `i` from 0, whether it has arrived, and whether the
        episode has ended. What has ended stays as it is.
        """
        before, arrived, stopped = now
        ball = _moved(before, self.ball)
        contact = _contact(ball, self.ball, self.edges, self.effects)
        ball = _bounced(ball, contact)
        again = (i == EXTRA - 1) & _one_polygon(contact)
        ball = select(again, _moved(ball, self.ball), ball)
        away = (ball.x - self.target[0]) ** 2 + (ball.y - self.target[1]) ** 2
        there = away < self.target_radius**2
        return (
            select(stopped, before, ball),
            arrived | (there & ~stopped),
            stopped | there | out_of_time,
        )

    def _slowed(self, ball: Ball) -> Ball:
        """Return the ball after friction, on the map."""
        rest = 1 - jnp.minimum(self.friction, 1.0)
        return Ball(_inside(ball.x), _inside(ball.y), ball.x_dot * rest, ball.y_dot * rest)


FIVE = Discrete(5)


def _pushed(ball: Ball, action: Array, force: float | Array) -> Ball:
    """Return the ball after an action has changed its velocity."""
    along_x = jnp.where(action == 0, force, jnp.where(action == 2, -force, 0.0))
    along_y = jnp.where(action == 3, force, jnp.where(action == 1, -force, 0.0))
    return Ball(
        ball.x,
        ball.y,
        jnp.clip(ball.x_dot + along_x, -FASTEST, FASTEST),
        jnp.clip(ball.y_dot + along_y, -FASTEST, FASTEST),
    )


def _moved(ball: Ball, radius: Array) -> Ball:
    """Return the ball one substep later, without regard to obstacles."""
    way = radius * jnp.float32(TAU)
    return Ball(ball.x + ball.x_dot * way, ball.y + ball.y_dot * way, ball.x_dot, ball.y_dot)


def _bounced(ball: Ball, contact: Contact) -> Ball:
    """Return the ball with its velocity mirrored at the only edge that it hits, or reversed where
    it hits several, of one polygon or more.

    The published program turns angles; in vectors, a velocity v is mirrored at an edge of angle φ
    to (v_x cos 2φ + v_y sin 2φ, v_x sin 2φ - v_y cos 2φ).
    """
    one, several = contact.edges == 1, contact.edges > 1
    x_dot = contact.cos * ball.x_dot + contact.sin * ball.y_dot
    y_dot = contact.sin * ball.x_dot - contact.cos * ball.y_dot
    return Ball(
        ball.x,
        ball.y,
        jnp.where(one, x_dot, jnp.where(several, -ball.x_dot, ball.x_dot)),
        jnp.where(one, y_dot, jnp.where(several, -ball.y_dot, ball.y_dot)),
    )


def _one_polygon(contact: Contact) -> Array:
    """Return whether all edges that are hit, and there are any, belong to one polygon, [] bool.

    Equality in the inequality of Cauchy and Schwarz: sums of integers, exact in float32.
    """
    equal = contact.edges * contact.squares == contact.polygons * contact.polygons
    return (contact.edges > 0) & equal


@vectorize.over_lanes
def _contact(ball: Ball, radius: Array, edges: Array, effects: Array) -> Contact:
    """Return the sums over the edges that the ball hits; last axes are lanes.

    The sums are of one term, or of integers, wherever they are used: their order does not matter.
    """
    px, py, way_x, way_y, inverse = edges
    ball, radius = jax.tree.map(lambda v: v[None], (ball, radius))  # beside edges
    x, y = ball.x - px, ball.y - py
    part = jnp.clip((x * way_x + y * way_y) * inverse, 0.0, 1.0)
    x, y = x - part * way_x, y - part * way_y  # from the nearest point to the ball
    distance = x * x + y * y
    away = x * ball.x_dot + y * ball.y_dot
    speed = ball.x_dot * ball.x_dot + ball.y_dot * ball.y_dot
    towards = away * jnp.abs(away) <= jnp.float32(TOWARDS) * distance * speed
    hit = ((distance <= radius * radius) & towards).astype(jnp.float32)
    if effects.shape[-1] == 1:  # common to all lanes
        sums = effects[..., 0] @ hit
    else:
        sums = (effects * hit[None]).sum(1)
    return Contact(*sums)


def _inside(place: Array) -> Array:
    """Return a coordinate, brought back where it lies outside the map."""
    return jnp.where(place > 1, 1 - INSIDE, jnp.where(place < 0, INSIDE, place))


def _observation(ball: Ball) -> Array:
    return jnp.stack([ball.x, ball.y, ball.x_dot, ball.y_dot])
