"""Pinball: collisions computed by hand, a twin in double precision that turns angles as the
published program does, the energy of a ball without friction, and files that are refused.
"""

import dataclasses
import json
import math
import pathlib
import re

import jax
import numpy as np
import pytest

from jbrl.base.errors import JbrlError
from jbrl.environments.environment import as_arrays
from jbrl.environments.pinball import MAPS, Ball, Pinball, PinballState, read_map
from jbrl.problems.lookup import problem
from tests.environments.playing import LANES, T, lane, on_host, play, uniforms

KEY = jax.random.key(0)
SQUARE = [[0.4, 0.4], [0.6, 0.4], [0.6, 0.6], [0.4, 0.6]]
# Half a length above and below 0.6, such that a ball beside (0.4, 0.6) touches both squares.
UPPER = [[0.4, 0.6], [0.6, 0.6], [0.6, 0.8], [0.4, 0.8]]
# A radius of 0.04 and a velocity of 1 are 0.002 in each substep, 0.04 in a step.
MAP = {"start": [0.1, 0.1], "target": [0.9, 0.9, 0.05], "ball": 0.04, "polygons": [SQUARE]}
STILL = {"spread": 0.0, "noise": 0.0, "friction": 0.0, "force": 0.0}

one_step = jax.jit(lambda environment, state, action: environment.step(KEY, state, action))


def test_what_replaces_a_part_of_a_map_stays():
    assert dataclasses.replace(Pinball(), ball=np.float32(0.5)).ball == 0.5


def on_map(tmp_path, **changes):
    path = tmp_path / "map.json"
    path.write_text(json.dumps(MAP | changes))
    return as_arrays(Pinball(map=str(path), **STILL))


def rolled(environment, x, y, x_dot, y_dot, steps=0):
    """Return the observation after one step without an action, and the step."""
    ball = Ball(*map(np.float32, (x, y, x_dot, y_dot)))
    step = one_step(environment, PinballState(ball, np.int32(steps)), np.int32(4))[1]
    return np.asarray(step.observation, np.float64), step


def nearest_point(place, a, b):
    """The point of the segment from a to b that is nearest to a place."""
    way = b[0] - a[0], b[1] - a[1]
    along = (place[0] - a[0]) * way[0] + (place[1] - a[1]) * way[1]
    part = min(max(along / (way[0] ** 2 + way[1] ** 2), 0.0), 1.0)
    return a[0] + part * way[0], a[1] + part * way[1]


@pytest.mark.parametrize(
    ("before", "after", "reward"),
    [
        ((0.1, 0.2, 1.0, -0.5), [0.14, 0.18, 1.0, -0.5], -1),  # straight, by radius and velocity
        # From x = 0.331 with x' = 1 the ball's border, at 0.371, meets the edge at 0.4 in substep
        # 15 (centre at 0.361), and rolls back for five: 0.361 - 0.010. Its y' goes on.
        ((0.331, 0.5, 1.0, 0.5), [0.351, 0.52, -1.0, 0.5], -1),
        ((0.5, 0.331, 0.5, 1.0), [0.52, 0.351, 0.5, -1.0], -1),
        # 0.9 - 0.05 is passed in substep 6 from 0.839: no friction, no further rolling
        ((0.839, 0.9, 1.0, 0.0), [0.851, 0.9, 1, 0], 10_000),
        # a coordinate outside comes back inside
        ((0.97, 0.2, 1.0, 0.0), [0.95, 0.2, 1, 0], -1),
        ((0.959, 0.2, 1.0, 0.0), [0.999, 0.2, 1, 0], -1),
        ((0.2, 0.03, 0.0, -1.0), [0.2, 0.05, 0, -1], -1),
    ],
)
def test_a_step_by_hand(tmp_path, before, after, reward):
    found, step = rolled(on_map(tmp_path), *before)
    np.testing.assert_allclose(found, after, rtol=1e-5)
    assert (float(step.reward), bool(step.terminated)) == (reward, reward > 0)


def test_a_slanted_edge_mirrors_the_velocity(tmp_path):
    """A wedge whose edge from (0.5, 0.3) to (0.8, 0.6) has direction (1, 1): x' and y' are swapped.

    The ball comes from (0.55, 0.5) downwards; its distance to the line is |y - x + 0.2| / √2, that
    is 0.1061 at first and at most 0.04 once y <= 0.40657, in substep 47 of velocity -1, the
    seventh of the third step.
    """
    environment = on_map(tmp_path, polygons=[[[0.5, 0.3], [0.8, 0.3], [0.8, 0.6]]])
    place = (0.55, 0.5, 0.0, -1.0)
    for _ in range(2):
        place, _ = rolled(environment, *place)
    np.testing.assert_allclose(place, [0.55, 0.42, 0, -1], atol=1e-6)
    place, _ = rolled(environment, *place)
    # seven substeps down to 0.406, then thirteen to the left
    np.testing.assert_allclose(place, [0.55 - 0.026, 0.406, -1, 0], atol=1e-5)


def test_a_corner_reverses_the_velocity(tmp_path):
    """Along the diagonal to (0.4, 0.4): two edges are hit at once, at the same point, 0.04 away.

    From 0.35 in each coordinate 0.03 / √2 = 0.0212132 are left: substep 11 of 0.002.
    """
    environment = on_map(tmp_path)
    found, _ = rolled(environment, 0.351, 0.351, 1.0, 1.0)
    substeps = math.ceil((0.049 - 0.04 / math.sqrt(2)) / 0.002)
    assert substeps == 11
    place = 0.351 + 0.002 * (substeps - (20 - substeps))
    np.testing.assert_allclose(found, [place, place, -1, -1], rtol=1e-5)


def test_two_polygons_at_once_reverse_the_velocity(tmp_path):
    """The squares have the line from (0.4, 0.4) to (0.4, 0.8) in common: a ball at y = 0.6 hits an
    edge of each, and their corners: it goes back the way it came, where one edge alone would
    keep its y'.
    """
    two = on_map(tmp_path, polygons=[SQUARE, UPPER])
    found, _ = rolled(two, 0.331, 0.595, 1.0, 0.25)
    np.testing.assert_allclose(found[2:], [-1, -0.25], rtol=1e-6)
    same = on_map(tmp_path, polygons=[SQUARE, SQUARE])
    found, _ = rolled(same, 0.331, 0.5, 1.0, 0.5)
    np.testing.assert_allclose(found, [0.351, 0.51, -1, -0.5], rtol=1e-5)


def test_the_nineteenth_substep_moves_twice_after_one_polygon(tmp_path):
    """The edge is met when the centre is beyond 0.36: from 0.36 - 0.037 in substep 19, and then
    the ball moves back three times, in 18 and 20 substeps once and twice less. Two edges of one
    polygon move it twice as well, two polygons once.
    """
    environment = on_map(tmp_path)
    for substep, back in ((18, 2), (19, 2), (20, 0)):
        x = 0.36 - 0.002 * substep + 0.001
        found, _ = rolled(environment, x, 0.5, 1.0, 0.0)
        assert found[2] == -1
        np.testing.assert_allclose(found[0], x + 0.002 * (substep - back), rtol=1e-5)
    start = 0.4 - 0.04 / math.sqrt(2) - 0.002 * 19 + 0.001
    found, _ = rolled(environment, start, start, 1.0, 1.0)
    np.testing.assert_allclose(found[:2], start + 0.002 * 17, rtol=1e-5)
    x = 0.36 - 0.002 * 19 + 0.001
    found, _ = rolled(on_map(tmp_path, polygons=[SQUARE, SQUARE]), x, 0.5, 1.0, 0.0)
    np.testing.assert_allclose(found[0], x + 0.002 * 18, rtol=1e-5)


@pytest.mark.parametrize(
    ("angle", "hit"), [(0.0, True), (0.44, True), (0.46, False), (90, False), (180, False)]
)
def test_a_ball_that_leaves_an_edge_behind_does_not_hit_it(tmp_path, angle, hit):
    """Beside the left edge, within reach of it: rolling along it, or away from it by at most
    π/1.99 - π/2, which is 0.4523 degrees, is a collision.
    """
    assert (math.pi / 1.99 - math.pi / 2) * 180 / math.pi == pytest.approx(0.4523, abs=1e-4)
    environment = on_map(tmp_path)
    x_dot, y_dot = -math.sin(math.radians(angle)), math.cos(math.radians(angle))
    if angle == 180:
        x_dot, y_dot = -1e-3, -1.0 + 1e-3
        hit = True
    # one substep: the last of an episode
    found, step = rolled(environment, 0.365, 0.5, 0.5 * x_dot, 0.5 * y_dot, steps=1000)
    assert bool(step.terminated)
    mirrored = [-0.5 * x_dot, 0.5 * y_dot] if hit else [0.5 * x_dot, 0.5 * y_dot]
    np.testing.assert_allclose(found[2:], mirrored, atol=1e-7)


def test_actions_push_and_friction_slows_after_rolling(tmp_path):
    environment = on_map(tmp_path)
    values = {"force": np.float32(0.25), "friction": np.float32(0.5)}
    environment = dataclasses.replace(environment, **values)
    state = PinballState(Ball(*map(np.float32, (0.2, 0.2, 0.0, 1.875))), np.int32(0))
    pushes = [(0.25, 1.875), (0.0, 1.625), (-0.25, 1.875), (0.0, 2.0), (0.0, 1.875)]
    for action, (x_dot, y_dot) in enumerate(pushes):
        step = one_step(environment, state, np.int32(action))[1]
        expected = [0.2 + 0.04 * x_dot, 0.2 + 0.04 * y_dot, x_dot / 2, y_dot / 2]
        np.testing.assert_allclose(step.observation, expected, rtol=1e-6, atol=1e-7)
        assert float(step.reward) == (-1 if action == 4 else -5)


lived = jax.jit(
    lambda environment, state, action, n: jax.lax.scan(
        lambda now, _: environment.step(KEY, now, action), state, length=n
    )[1],
    static_argnums=3,
)


@pytest.mark.first_case_quick
@pytest.mark.parametrize("name", ["medium", "single", "box", "empty"])
def test_speed_stays_without_friction_and_the_ball_stays_on_the_map(name):
    """1000 steps from the start in eight directions: 20,000 substeps each, with hundreds of
    collisions, none of which changes the speed or lets the ball into a wall.
    """
    environment = as_arrays(Pinball(map=name, **STILL))
    angles = np.linspace(0.1, 2 * np.pi + 0.1, 8, endpoint=False)
    places = [np.full(8, place, np.float32) for place in (0.2, 0.9)]
    velocities = [np.float32(1.8 * part(angles)) for part in (np.cos, np.sin)]
    state = PinballState(Ball(*places, *velocities), np.zeros(8, np.int32))
    log = on_host(jax.jit(jax.vmap(lambda s: lived(environment, s, np.int32(4), 1000)))(state))
    x, y, x_dot, y_dot = np.moveaxis(log.observation.astype(float), -1, 0)
    np.testing.assert_allclose(np.hypot(x_dot, y_dot), 1.8, rtol=2e-5)
    turns = sum((np.diff(np.sign(v), axis=1) != 0).sum(axis=1) for v in (x_dot, y_dot))
    assert turns.min() > 10
    for place in (x, y):
        assert (place > 0.025).all()
        assert (place < 0.975).all()


class Twin:
    """The rules in plain Python, written from the specification's section 11, with angles."""

    def __init__(self, found, radius, target_radius, force, noise, friction):
        self.polygons = [p.tolist() for p in found.polygons]
        self.target, self.target_radius = found.target.tolist(), target_radius
        self.radius, self.force, self.noise, self.friction = radius, force, noise, friction

    def hits(self, place, velocity, polygon):
        """Directions of the edges of a polygon that are hit."""
        found = []
        for a, b in zip(polygon, polygon[1:] + polygon[:1], strict=True):
            near = nearest_point(place, a, b)
            if math.dist(place, near) > self.radius:
                continue
            towards = near[0] - place[0], near[1] - place[1]
            if turned(towards, velocity) <= math.pi / 1.99:
                found.append((b[0] - a[0], b[1] - a[1]))
        return found

    def moved(self, place, velocity):
        return tuple(p + v * self.radius * 0.05 for p, v in zip(place, velocity, strict=True))

    def step(self, state, steps, chances, action):
        """The observation after a step, its reward and whether the episode has ended."""
        place, velocity = tuple(map(float, state[:2])), tuple(map(float, state[2:]))
        if chances[0] < self.noise:
            action = min(int(chances[1] * 5), 4)
        push = [(1, 0), (0, -1), (-1, 0), (0, 1), (0, 0)][action]
        velocity = tuple(
            min(max(v + self.force * p, -2), 2) for v, p in zip(velocity, push, strict=True)
        )
        for number in range(1, 21):
            place = self.moved(place, velocity)
            hits = [h for h in (self.hits(place, velocity, p) for p in self.polygons) if h]
            if len(hits) == 1 and len(hits[0]) == 1:
                velocity = mirrored(velocity, hits[0][0])
            elif hits:
                velocity = -velocity[0], -velocity[1]
            if len(hits) == 1 and number == 19:
                place = self.moved(place, velocity)
            there = math.dist(place, self.target) < self.target_radius
            if there or steps == 1000:
                return (*place, *velocity), 10_000 if there else -1, True
        place = tuple(0.95 if p > 1 else 0.05 if p < 0 else p for p in place)
        velocity = tuple(v * (1 - self.friction) for v in velocity)
        return (*place, *velocity), -1 if action == 4 else -5, False


def bearing(a, b):
    """The specification's angle(a, b), x first."""
    angle = math.atan2(a[0], a[1]) - math.atan2(b[0], b[1])
    return angle + 2 * math.pi if angle < 0 else angle


def turned(a, b):
    angle = bearing(a, b)
    return 2 * math.pi - angle if angle > math.pi else angle


def mirrored(velocity, way):
    way = (-way[0], -way[1]) if way[0] < 0 else way
    theta = bearing(velocity, way) - math.pi
    theta = theta + 2 * math.pi if theta < 0 else theta
    theta += bearing((-1, 0), way)
    speed = math.hypot(*velocity)
    return speed * math.cos(theta), speed * math.sin(theta)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), [("medium", 150), ("single", 2000)])
def test_every_step_is_that_of_a_twin_in_double_precision(name, steps):
    """One step at a time, from the state that was played.

    Single precision decides collisions within 1e-7 of the threshold otherwise, a substep before or
    after: at most 2 % of the steps of a lane differ by more than 1e-4.
    """
    environment = Pinball(map=name)
    lanes, actions, _, log = play(environment)
    for i in range(LANES):
        played = lane(log, i)
        names = ("ball", "target_radius", "force", "noise", "friction")
        values = [np.float64(getattr(lanes, field)[i]) for field in names]
        twin = Twin(read_map(name), *values)
        chances = uniforms(played.words)
        ends = np.concatenate([[-1], np.flatnonzero(played.step.terminated)])
        count = np.arange(T) - ends[np.searchsorted(ends, np.arange(T)) - 1] - 1
        # where episodes end, and the first steps
        chosen = sorted({*range(steps), *ends[1:].tolist()})
        found = [twin.step(played.before[t], count[t], chances[t], actions[i, t]) for t in chosen]
        after, reward, ended = (np.array(part) for part in zip(*found, strict=True))
        far = np.abs(played.step.observation[chosen] - after).max(axis=1) > 1e-4
        assert far.mean() <= 0.02
        np.testing.assert_array_equal(played.step.reward[chosen], reward)
        np.testing.assert_array_equal(played.step.terminated[chosen], ended)
        assert not played.step.truncated.any()


def test_nothing_is_earned_by_waiting():
    """The action that does nothing: 1001 steps at -1; pushing: 1000 at -5 and the last at -1."""
    environment = as_arrays(Pinball(**STILL))
    for action, total in ((4, -1001), (0, -5001)):
        step = lived(environment, environment.reset(KEY)[0], np.int32(action), 1001)
        assert list(np.flatnonzero(step.terminated)) == [1000]
        assert float(np.asarray(step.reward, np.float64).sum()) == total


def test_problems_have_the_published_maps_and_lifetimes():
    edges = {"empty": 16, "box": 20, "medium": 48, "single": 53}
    for name in MAPS:
        found = problem(f"Pinball-{name}")
        assert found.lifetime.episodes == (200 if name == "single" else 100)
        assert found.environment.edges.shape == (5, edges[name])
        np.testing.assert_allclose(found.environment.start, [0.2, 0.9])
    polygons = [p.tolist() for p in read_map("medium").polygons]
    assert [p for i, p in enumerate(polygons) if p in polygons[:i]] == [polygons[5]]


def test_content_of_a_map_is_its_identity_and_its_path_is_not(tmp_path):
    paths = [tmp_path / name for name in ("one.json", "two.json", "three.json")]
    for path, ball in zip(paths, (0.04, 0.04, 0.03), strict=True):
        path.write_text(json.dumps(MAP | {"ball": ball}))
    one, two, three = (problem(f'Pinball(map="{path}")').digest for path in paths)
    assert one == two != three


TWO = [[0.1, 0.1], [0.2, 0.2]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (MAP | {"polygons": [SQUARE, TWO]}, "polygons[1]: 2 points: expected a list of at least"),
        (MAP | {"polygons": [[*SQUARE, SQUARE[0]]]}, "points 4 and 0 are the same"),
        (MAP | {"polygons": [[[0, 0], [0.5, 0.25], [1, 0.5]]]}, "all points lie on one line"),
        (MAP | {"polygons": []}, "polygons = []: expected a list of at least one polygon"),
        (MAP | {"polygons": [5]}, "polygons[0]: 5: expected a list of at least three points"),
        (MAP | {"polygons": [[[0, 0], [1, 0], [0]]]}, "polygons[0][2] = [0]: expected a list of 2"),
        (MAP | {"start": [0.1, "a"]}, "start[1] = 'a': expected a number from -1000 to 1000"),
        (MAP | {"start": [0.1, float("nan")]}, "start[1] = nan: expected a number"),
        (MAP | {"target": [0.1, 0.1]}, "target = [0.1, 0.1]: expected a list of 3 numbers"),
        (MAP | {"target": [0.1, 0.1, 0]}, "target[2] = 0: expected a radius above 0"),
        (MAP | {"ball": -1}, "ball = -1: expected a radius above 0"),
        (MAP | {"ball": True}, "ball = True: expected a number"),
        (MAP | {"bal": 1}, "unknown field 'bal'; did you mean 'ball'?"),
        ({k: v for k, v in MAP.items() if k != "ball"}, "the field 'ball' is missing"),
        ([], "expected a JSON object with the fields start, target, ball, polygons"),
        ("{", "not valid JSON"),
    ],
    ids=range(16),
)
def test_bad_maps_are_refused_in_one_sentence(tmp_path, content, message):
    path = tmp_path / "map.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(JbrlError, match=re.escape(message)) as caught:
        problem(f'Pinball(map="{path}")')
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_maps_are_refused_with_the_known_ones(tmp_path):
    with pytest.raises(JbrlError, match=r"map = 'medum': unknown map; did you mean 'medium'"):
        problem('Pinball(map="medum")')
    with pytest.raises(JbrlError, match=r"none.json: cannot be read: No such file"):
        problem(f'Pinball(map="{pathlib.Path(tmp_path) / "none.json"}")')


def test_map_on_the_page_is_read(tmp_path):
    page = pathlib.Path(__file__).parents[2] / "docs" / "environments" / "pinball.md"
    text = re.search(r"```json\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[1]
    path = tmp_path / "hall.json"
    path.write_text(text)
    assert problem(f'Pinball(map="{path}")').environment.edges.shape == (5, 7)
