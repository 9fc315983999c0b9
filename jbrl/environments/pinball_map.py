"""Maps of pinball: polygons, a start, a target and a ball, from JSON files.

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
import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from jbrl.base.errors import JbrlError, nearest, shown

MAPS = ("empty", "box", "medium", "single")  # of Jordan et al. 2020
FIELDS = ("start", "target", "ball", "polygons")
GREATEST = 1000.0  # of coordinates and radii


@dataclasses.dataclass(frozen=True)
class Map:
    """A map on the host, checked."""

    start: np.ndarray  # [2] float32
    target: np.ndarray  # [2] float32
    target_radius: float
    ball_radius: float
    polygons: tuple[np.ndarray, ...]  # [points, 2] float64 each

    @property
    def edges(self) -> np.ndarray:
        """Edges of all polygons, [5, E] float32: first point x, y; way to the second one x, y;
        1 / length².
        """
        first, way, _ = self._edges()
        return np.vstack([first.T, way.T, 1 / (way**2).sum(1)]).astype(np.float32)

    @property
    def effects(self) -> np.ndarray:
        """Contribution of each edge to what a collision does, [5, E] float32: 1; cosine and sine of
        twice the edge's angle; number of its polygon, and the square of that.
        """
        _, way, number = self._edges()
        x, y, length = way[:, 0], way[:, 1], (way**2).sum(1)
        rows = [np.ones(len(way)), (x**2 - y**2) / length, 2 * x * y / length, number, number**2]
        return np.vstack(rows).astype(np.float32)

    def _edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return first points [E, 2], ways to the second points [E, 2], numbers of polygons [E]."""
        points = np.concatenate(self.polygons)
        following = np.concatenate([np.roll(polygon, -1, axis=0) for polygon in self.polygons])
        sizes = [len(polygon) for polygon in self.polygons]
        return points, following - points, np.repeat(np.arange(len(sizes)), sizes).astype(float)


def read_map(name: str) -> Map:
    """Read one of `MAPS`, or a file that ends in .json.

    Raises:
      JbrlError: no such map, or the file cannot be read or is not sound.
    """
    if name in MAPS:
        file = resources.files("jbrl.environments").joinpath("data", "pinball", f"{name}.json")
        return _checked(json.loads(file.read_text(encoding="utf-8")), name)
    if not name.casefold().endswith(".json"):
        raise JbrlError(
            f"map = '{shown(name, str)}': unknown map{nearest(name, MAPS)}; the path of a map's "
            "file ends in .json"
        )
    return _checked(_load(Path(name)), name)


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise JbrlError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise JbrlError(f"{path}: not valid JSON: {str(error).splitlines()[0]}") from None


def _checked(data: Any, where: str) -> Map:
    if not isinstance(data, dict):
        raise JbrlError(f"{where}: expected a JSON object with the fields {', '.join(FIELDS)}")
    for field in data:
        if field not in FIELDS:
            raise JbrlError(f"{where}: unknown field '{shown(field, str)}'{nearest(field, FIELDS)}")
    for field in FIELDS:
        if field not in data:
            raise JbrlError(f"{where}: the field '{field}' is missing")
    start = _numbers(data["start"], 2, f"{where}: start")
    target = _numbers(data["target"], 3, f"{where}: target")
    polygons = data["polygons"]
    if not isinstance(polygons, list) or not polygons:
        raise JbrlError(
            f"{where}: polygons = {shown(polygons)}: expected a list of at least one polygon"
        )
    return Map(
        start.astype(np.float32),
        target[:2].astype(np.float32),
        _radius(target[2], f"{where}: target[2]"),
        _radius(_number(data["ball"], f"{where}: ball"), f"{where}: ball"),
        tuple(_polygon(p, f"{where}: polygons[{i}]") for i, p in enumerate(polygons)),
    )


def _polygon(points: Any, where: str) -> np.ndarray:
    if not isinstance(points, list) or len(points) < 3:
        count = f"{len(points)} points" if isinstance(points, list) else shown(points)
        raise JbrlError(f"{where}: {count}: expected a list of at least three points [x, y]")
    found = np.array([_numbers(p, 2, f"{where}[{i}]") for i, p in enumerate(points)])
    same = (np.abs(np.roll(found, -1, axis=0) - found) < 1e-6).all(axis=1)
    if same.any():
        i = int(np.flatnonzero(same)[0])
        raise JbrlError(
            f"{where}: points {i} and {(i + 1) % len(found)} are the same: expected edges of a "
            "length above 0"
        )
    if np.linalg.svd(found - found.mean(0), compute_uv=False)[1] < 1e-6:
        raise JbrlError(f"{where}: all points lie on one line: expected points around an area")
    return found


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


def _radius(value: float, where: str) -> float:
    if not value >= 1e-6:
        raise JbrlError(f"{where} = {value:g}: expected a radius above 0")
    return value
