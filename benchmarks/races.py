"""Count the scores that races need, beside two other rules, on candidates of known means.

python benchmarks/races.py [--races 200]

Prints one JSON line for each field of four candidates, kind of scores and rule: scores played in
all, on average over races, the share of races that ended before a candidate had `MOST` scores, and
the share of those that ended whose answer is worse than the best by `EPSILON` or more.

  race       `jbrl.stats.race.Race`, as `jbrl choose` uses it: all that may win play, blocks double
  challenger leader against challenger (Kalyanakrishnan et al. 2012): only the leader and the one
             that is least settled play on, with the evidence and the end of a race
  halving    sequential halving (Karnin et al. 2013) of the least number of scores, a power of two,
             with which it is wrong in one of 20 races at most: it promises nothing, and this
             number is not known beforehand

Scores of one number are from one environment. Seed 0. Kept in `benchmarks/results/races.jsonl`.
"""

import argparse
import itertools
import json
import math
from collections.abc import Callable

import numpy as np

from jbrl.stats.race import Race

FIELDS = {
    "equal": [0.4, 0.4, 0.4, 0.4],
    "close": [0.4, 0.39, 0.38, 0.35],
    "apart": [0.4, 0.3, 0.2, 0.1],
}
KINDS = ("binary", "heavy")
EPSILON, CONFIDENCE = 0.02, 0.95
FIRST, MOST = 64, 2**14  # scores of a candidate
Floats = np.ndarray


def scores(means: list[float], kind: str, rng: np.random.Generator, n: int) -> Floats:
    """Draw n paired scores of each candidate, [candidates, n] float64 from 0 to 1.

    Args:
      kind: "binary": 0 or twice the mean; "heavy": one in fifty scores is 1, all others are alike.
    """
    common, rows = rng.random(n), []
    for mean in means:
        own = rng.random(n)
        if kind == "binary":
            rows.append((0.5 * (common + own) < 0.5) * mean * 2)
        else:
            rows.append(np.where(own < 0.02, 1.0, np.clip((mean - 0.02) / 0.98, 0, 1)))
    return np.array(rows)


def new_race(n_candidates: int, epsilon: float = EPSILON) -> Race:
    """Return a race of candidates that are called by their numbers."""
    names = [str(k) for k in range(n_candidates)]
    return Race(names, span=1.0, epsilon=epsilon, confidence=CONFIDENCE)


def race(table: Floats) -> tuple[int, int, bool]:
    """Race candidates over a table of scores, [candidates, n]; return the leader, the scores played
    and whether the race has ended.
    """
    found, start, stop = new_race(len(table)), 0, FIRST
    while stop <= table.shape[1]:
        for name in found.running or found.names:
            found.add(name, table[int(name), start:stop])
        found.drop()
        if not found.open():
            break
        start, stop = stop, 2 * stop
    played = sum(len(found.scores(name)) for name in found.names)
    return int(found.leader), played, not found.open()


def challenger(table: Floats) -> tuple[int, int, bool]:
    """Let the leader and its challenger play on, by a quarter of what they have; as `race`."""
    found = new_race(len(table))
    for name in found.names:
        found.add(name, table[int(name), :FIRST])
    while True:
        n = {name: len(found.scores(name)) for name in found.names}
        leader = max(found.names, key=lambda name: found.scores(name).mean())
        others = [one for one in found.names if one != leader and not found.settled(one, leader)]
        if not others or min(n[one] for one in (*others, leader)) == table.shape[1]:
            return int(leader), sum(n.values()), not others
        least = min(others, key=lambda name: (_towards(found, leader, name), n[name]))
        wanted = min(table.shape[1], math.ceil(1.25 * min(n[least], n[leader])))
        for name in (leader, least):
            found.add(name, table[int(name), n[name] : wanted])


def _towards(found: Race, leader: str, name: str) -> float:
    """Return how much speaks for `leader` against `name`: few standard errors for a challenger."""
    n = min(len(found.scores(leader)), len(found.scores(name)))
    differences = found.scores(leader)[:n] - found.scores(name)[:n] + found.epsilon
    return float(differences.mean() / max(differences.std() / math.sqrt(n), 1e-12))


def halving(table: Floats, budget: int) -> int:
    """Return the best of sequential halving that plays `budget` scores."""
    alive, start = np.arange(len(table)), 0
    rounds = math.ceil(math.log2(len(table)))
    for _ in range(rounds):
        stop = min(table.shape[1], start + max(1, budget // (rounds * len(alive))))
        means = table[alive, :stop].mean(axis=1)
        alive = alive[np.argsort(-means, kind="stable")[: math.ceil(len(alive) / 2)]]
        start = stop
    return int(alive[0])


def compared(means: list[float], kind: str, races: int) -> dict[str, dict[str, float]]:
    """Return what is printed of each rule."""
    rules: dict[str, Callable[[Floats], tuple[int, int, bool]]]
    rules = {"race": race, "challenger": challenger}
    rows: dict[str, list[tuple[int, int, bool]]] = {}
    tables = [scores(means, kind, np.random.default_rng(seed), MOST) for seed in range(races)]
    for name, rule in rules.items():
        rows[name] = [rule(table) for table in tables]
    lost = np.max(means) - np.array(means)
    budget = 2 * len(means)
    while True:
        found = [halving(table, budget) for table in tables]
        if np.mean(lost[found] >= EPSILON) <= 1 - CONFIDENCE:
            break
        budget *= 2
    rows["halving"] = [(best, budget, True) for best in found]
    return {
        name: {
            "scores": float(np.mean([played for _, played, _ in own])),
            "ended": float(np.mean([ended for *_, ended in own])),
            "wrong": float(np.mean([ended and lost[best] >= EPSILON for best, _, ended in own])),
        }
        for name, own in rows.items()
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--races", type=int, default=200)
    given = parser.parse_args()
    for field, kind in itertools.product(FIELDS, KINDS):
        for rule, found in compared(FIELDS[field], kind, given.races).items():
            row = {"field": field, "kind": kind, "rule": rule, "races": given.races, **found}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
