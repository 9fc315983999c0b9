"""Races beside other rules: scores that they take, and errors; and choices beside the truth.

python benchmarks/choose.py races [--races N]
python benchmarks/choose.py problems [--budget SECONDS] [--only TEXT]

Races: candidates with known means (equal, close, apart), scores that are 0 or 1, or heavy within
their bounds. A line of JSON for each kind and rule: races whose choice is worse than the best by
epsilon or more, and the mean number of scores in all. Successive halving is given the scores that
the race took; leader against challenger plays the two that are closest until their limits part.

Problems: for each problem and pair of limits, the choice beside a study that plays every candidate
of the portfolio that keeps the limits in 20,000 environments. A line of JSON each: whether the
choice is within epsilon of the best, and the seconds of both.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jbrl.stats.race import Race  # noqa: E402

EPSILON, MOST = 0.02, 2**16
FIELDS = {
    "equal": [0.4] * 8,
    "close": [0.4, 0.39, 0.38, 0.37, 0.36, 0.35, 0.34, 0.33],
    "apart": [0.4, 0.3, 0.25, 0.2, 0.2, 0.15, 0.1, 0.1],
}
TRUTH = 20_000  # environments
PROBLEMS = (
    *(f"GC(n_states={n})" for n in (3, 5, 8)),
    *("GC", "GDL", "Grid", "Chain", "Catch", "DeepSea", "CartPole", "MountainCar"),
    *(f"experiments/suite/{kind}.json" for kind in ("sparse-5x3", "dense-5x3", "sparse-9x2")),
    *(f"experiments/suite/{kind}.json" for kind in ("dense-9x2", "sparse-10x3", "dense-10x3")),
    *(f"experiments/suite/{kind}.json" for kind in ("sparse-16x4", "dense-16x4", "brl-5")),
)
LIMITS = (("60 s", "1 ms"), ("1 s", "100 us"))


def draws(rng: np.random.Generator, means: np.ndarray, heavy: bool, n: int) -> np.ndarray:
    """Return scores [candidates, n] in 0..1 that share a part by environment."""
    common, own = rng.random(n), rng.random((len(means), n))
    if heavy:
        return np.where(own < 0.02, 1.0, (means[:, None] - 0.02) / 0.98)
    return (0.5 * (common + own) < 0.5) * means[:, None] * 2


def race(scores: np.ndarray, confidence: float = 0.95) -> tuple[int, int]:
    """Return the leader of a race at its end, and the scores that it took."""
    names = [str(k) for k in range(len(scores))]
    found = Race(names, span=1.0, epsilon=EPSILON, confidence=confidence)
    stop, used = 64, 0
    todo = names
    while stop <= scores.shape[1]:
        for name in todo:
            have = len(found.scores(name))
            found.add(name, scores[int(name), have:stop])
            used += stop - have
        found.drop()
        rivals = found.open()
        if not rivals:
            break
        todo, stop = [found.leader, *rivals], 2 * stop
    return int(found.leader), used


def halving(scores: np.ndarray, budget: int) -> tuple[int, int]:
    """Return the winner of successive halving that is given so many scores."""
    alive, used, at = np.arange(len(scores)), 0, 0
    rounds = int(np.ceil(np.log2(len(scores))))
    while len(alive) > 1:
        n = min(max(1, budget // (rounds * len(alive))), scores.shape[1] - at)
        means = scores[alive, : at + n].mean(axis=1)
        used, at = used + n * len(alive), at + n
        alive = alive[np.argsort(-means, kind="stable")[: -(-len(alive) // 2)]]
    return int(alive[0]), used


def challenger(scores: np.ndarray) -> tuple[int, int]:
    """Return the leader when the closest rival is within epsilon by the normal limits of both
    means, each block played by leader and challenger alone (LUCB, without pairing).
    """
    k, played = len(scores), np.full(len(scores), 64)
    while True:
        means = np.array([scores[i, : played[i]].mean() for i in range(k)])
        spread = np.array([scores[i, : played[i]].std() for i in range(k)])
        width = np.sqrt(2 * np.log(4 * k * np.log2(2 * played) ** 2 / 0.05) / played)
        width = spread * width + 3 * width**2 / 2
        leader = int(means.argmax())
        upper = means + width
        upper[leader] = -np.inf
        rival = int(upper.argmax())
        over = upper[rival] - (means[leader] - width[leader]) < EPSILON
        if over or played[leader] * 2 > scores.shape[1] or played[rival] * 2 > scores.shape[1]:
            return leader, int(played.sum())
        played[min(leader, rival, key=lambda k: played[k])] *= 2


def races(n: int) -> Iterator[dict[str, Any]]:
    """Yield how each rule did on each kind of race."""
    for kind, given in FIELDS.items():
        for heavy in (False, True):
            means, taken = np.array(given), {"race": [], "halving": [], "challenger": []}
            for seed in range(n):
                rng = np.random.default_rng([seed, heavy])
                order = rng.permutation(len(means))
                scores = draws(rng, means[order], heavy, MOST)
                ours = race(scores)
                found = {"race": ours, "halving": halving(scores, ours[1])}
                found["challenger"] = challenger(scores)
                for rule, (choice, used) in found.items():
                    wrong = means.max() - means[order][choice] >= EPSILON - 1e-12
                    taken[rule].append((wrong, used))
            for rule, rows in taken.items():
                wrong, used = np.array(rows, float).T
                shape = "heavy" if heavy else "binary"
                yield {"field": kind, "scores": shape, "rule": rule, "races": n} | {
                    "wrong": int(wrong.sum()),
                    "scores_used": round(used.mean()),
                }


def problems(budget: float, only: str) -> Iterator[dict[str, Any]]:
    """Yield how each choice compares with a study of all candidates."""
    import jbrl
    from jbrl.base.parameters import parse_seconds
    from jbrl.choose import choose
    from jbrl.play.protocol import Protocol
    from jbrl.study.portfolio import portfolio

    for name in (name for name in PROBLEMS if only in name):
        for offline, online in LIMITS:
            started = time.monotonic()
            choice = choose(name, offline=offline, online=online, budget=budget)
            chosen, started = time.monotonic() - started, time.monotonic()
            keep = {one.name for one in choice.standings if one.status != "over a limit"}
            test = jbrl.problem(name)
            rules = Protocol(test, test, TRUTH, 1, test.lifetime)
            limits = parse_seconds("offline", offline), parse_seconds("online", online)
            means = {}
            for one in portfolio(rules, *limits):
                if one.name in keep:
                    played = jbrl.play(one.agent, test=test, n_environments=TRUTH, seed=1)
                    means[one.name] = float(np.nanmean(played.returns))
            lost = max(means.values()) - means[choice.recommended] if means else float("nan")
            yield {
                "problem": name,
                "offline": offline,
                "online": online,
                "choice": choice.recommended,
                "best": max(means, key=lambda one: means[one]) if means else None,
                "lost": lost,
                "epsilon": choice.epsilon,
                "within": bool(lost <= choice.epsilon),
                "choice_seconds": round(chosen, 1),
                "study_seconds": round(time.monotonic() - started, 1),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("races", "problems"))
    parser.add_argument("--races", type=int, default=1000)
    parser.add_argument("--budget", type=float, default=600)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    lines = races(given.races) if given.what == "races" else problems(given.budget, given.only)
    for line in lines:
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
