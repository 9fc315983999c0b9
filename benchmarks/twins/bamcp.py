"""Slow and obvious: BAMCP with nodes that are objects and one simulation after the other, on the
random words that jbrl uses.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

WORD = 2**32
F = np.float32


def stream(key: tuple[int, int]) -> tuple[int, int]:
    first = mix((key[0] + mix(key[1])) % WORD)
    return first, mix(key[1] ^ first)


def word(stream: tuple[int, int], counter: int) -> int:
    w = counter ^ stream[0]
    w = ((w ^ (w >> 16)) * 0x7FEB352D + stream[1]) % WORD
    w = ((w ^ (w >> 15)) * 0x846CA68B) % WORD
    return w ^ (w >> 16)


def uniform(word: int) -> np.float32:
    return F(word >> 8) * F(2**-24)


@dataclass
class Node:
    visits: np.ndarray  # [A] float32
    means: np.ndarray  # [A] float32
    returns: list[list[float]]  # of each action, all that came back
    children: dict[tuple[int, int], "Node"] = field(default_factory=dict)  # by (action, next state)


def new_node(n_actions: int) -> Node:
    return Node(np.zeros(n_actions, F), np.zeros(n_actions, F), [[] for _ in range(n_actions)])


def nodes(node: Node, history: tuple = ()) -> Iterator[tuple[tuple, Node]]:
    """Yield all nodes at and beyond `node`, each with its history."""
    yield history, node
    for step, child in node.children.items():
        yield from nodes(child, (*history, step))


def mix(w: int) -> int:
    w = ((w ^ (w >> 16)) * 0x7FEB352D) % WORD
    w = ((w ^ (w >> 15)) * 0x846CA68B) % WORD
    return w ^ (w >> 16)


def one_of_the_best(values: np.ndarray, word: int) -> int:
    best = np.flatnonzero(values >= values.max())
    return int(max(best, key=lambda i: mix((word + int(i) * 0x9E3779B9) % WORD)))


@dataclass
class Urn:
    """Next states of one simulation, by Polya's urn."""

    counts: np.ndarray  # [S, A, S] float32
    drawn: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def __call__(self, x: int, u: int, uniform: np.float32) -> int:
        earlier = self.drawn.setdefault((x, u), [])
        cdf = np.cumsum(self.counts[x, u], dtype=F)
        ball = uniform * F(cdf[-1] + F(len(earlier)))
        y = (
            int((cdf <= ball).sum())
            if ball < cdf[-1] or not earlier
            else earlier[min(int(ball - cdf[-1]), len(earlier) - 1)]
        )
        earlier.append(y)
        return y


@dataclass
class Twin:
    """The agent. Attributes as in `jbrl.agents.search.bamcp.BAMCP`."""

    counts: np.ndarray  # [S, A, S]
    rewards: np.ndarray  # [S, A, S]
    discount: float = 0.95
    simulations: int = 500
    depth: int = 15
    exploration: float = 3.0
    learns: bool = True
    reuse: bool = False
    final: str = "mean"
    # default: the urn; else of (agent, number of the simulation)
    next_states: Callable[["Twin", int], Callable] | None = None

    def __post_init__(self) -> None:
        self.counts, self.rewards = self.counts.astype(F), self.rewards.astype(F)
        self.n_states, self.n_actions, _ = self.counts.shape
        self.q = np.zeros((self.n_states, self.n_actions), F)
        self.root = new_node(self.n_actions)

    def act(self, key: tuple[int, int], x: int) -> int:
        key = stream(key)
        if not self.reuse:
            self.root = new_node(self.n_actions)
        for k in range(self.simulations):
            draw = self.next_states(self, k) if self.next_states else Urn(self.counts)
            self.simulate(self.root, x, k, 0, key, draw)
        worth = self.root.means if self.final == "mean" else self.root.visits
        return one_of_the_best(worth, word(key, WORD - 1))

    def observe(self, x: int, u: int, y: int, reward: float) -> None:
        self.counts[x, u, y] += 1
        if self.learns:
            self.q[x, u] += F(0.2) * (F(reward) + F(self.discount) * self.q[y].max() - self.q[x, u])
        self.root = self.root.children.get((u, y), new_node(self.n_actions))

    def simulate(
        self, node: Node, x: int, k: int, d: int, key: tuple[int, int], draw: Callable
    ) -> np.float32:
        if d >= self.depth:
            return F(0)
        first, second = self.two_words(key, k, d)
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = node.means + F(self.exploration) * np.sqrt(
                np.log(node.visits.sum() + F(1)) / node.visits
            )
        u = one_of_the_best(np.where(node.visits == 0, np.inf, bound), first)
        y = draw(x, u, uniform(second))
        if (u, y) not in node.children and node.visits[u] > 0 and d + 1 < self.depth:
            node.children[u, y] = new_node(self.n_actions)
        if (u, y) in node.children:
            rest = self.simulate(node.children[u, y], y, k, d + 1, key, draw)
        else:
            rest = self.roll_out(y, k, d + 1, key, draw)
        value = self.rewards[x, u, y] + F(self.discount) * rest
        node.returns[u].append(float(value))
        node.visits[u] += 1
        node.means[u] += (value - node.means[u]) / node.visits[u]
        return value

    def roll_out(self, x: int, k: int, d: int, key: tuple[int, int], draw: Callable) -> np.float32:
        value, weight = F(0), F(1)
        for step in range(d, self.depth):
            first, second = self.two_words(key, k, step)
            choice = uniform(first << 1 & WORD - 1)
            anything = int(choice * F(self.n_actions))
            greedy = np.flatnonzero(self.q[x] >= self.q[x].max())
            u = anything if first >> 31 == 0 else int(greedy[int(choice * F(len(greedy)))])
            y = draw(x, u, uniform(second))
            value, weight, x = value + weight * self.rewards[x, u, y], weight * F(self.discount), y
        return value

    def two_words(self, key: tuple[int, int], k: int, d: int) -> tuple[int, int]:
        counter = 2 * (k * self.depth + d)
        return word(key, counter), word(key, counter + 1)
