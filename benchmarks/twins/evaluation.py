"""Twin of the evaluation game: loops over samples and strategies, the full transition matrix, a
linear programme for the bounds.

Samples are {(algorithm, environment): array}; algorithms and environments are counted from 0.
"""

import numpy as np
from scipy.optimize import linprog

TIE = 1 / 50


def close(a, b):
    return abs(a - b) <= 1.49e-8 * max(abs(a), abs(b))


def payoff(samples, n, m, same):
    z = np.empty((n, m, n))
    for i in range(n):
        for j in range(m):
            for k in range(n):
                x, y = samples[i, j], samples[k, j]
                z[i, j, k] = (
                    0.5 if same(i, j, k) else np.mean([np.mean([b <= a for b in y]) for a in x])
                )
    return z


def anderson(samples, n, m, same, delta, bounds):
    low, high = np.empty((n, m, n)), np.empty((n, m, n))
    level = delta / (n * m)
    width = {c: np.sqrt(np.log(2 / level) / (2 * len(x))) for c, x in samples.items()}

    def band(k, j, u, sign):
        a, b = bounds[j]
        cdf = np.mean(samples[k, j] <= u)
        return 0.0 if u < a else 1.0 if u >= b else float(np.clip(cdf + sign * width[k, j], 0, 1))

    for i in range(n):
        for j in range(m):
            x = np.sort(samples[i, j])
            T, (a, b) = len(x), bounds[j]
            points = [a, *x, b]
            for k in range(n):
                if same(i, j, k):
                    low[i, j, k] = high[i, j, k] = 0.5
                    continue
                g = [band(k, j, u, -1) for u in points]
                low[i, j, k] = g[T] - sum(
                    (g[t + 1] - g[t]) * min(1, t / T + width[i, j]) for t in range(T)
                )
                g = [band(k, j, u, +1) for u in points]
                high[i, j, k] = g[T + 1] - sum(
                    (g[t + 1] - g[t]) * max(0, t / T - width[i, j]) for t in range(1, T + 1)
                )
    return low, high


def edges(n, m):
    """Return (s, s', who moves) for all joint strategies, s = (i, j, k)."""
    strategies = [(i, j, k) for i in range(n) for j in range(m) for k in range(n)]
    for s in strategies:
        for t in strategies:
            if s != t and s[1:] == t[1:]:
                yield strategies.index(s), strategies.index(t), "p"
            elif s != t and s[0] == t[0]:
                yield strategies.index(s), strategies.index(t), "q"


def solve(z):
    """Return scores, p*, q* of the paper's damped chain."""
    n, m, _ = z.shape
    S, eta, u = n * m * n, 1 / (n - 1 + n * m - 1), z.ravel()
    C = np.zeros((S, S))
    for s, t, who in edges(n, m):
        gain = u[t] - u[s] if who == "p" else u[s] - u[t]
        C[s, t] = eta * TIE if close(u[s], u[t]) else eta * (gain > 0)
    C += np.diag(1 - C.sum(axis=1))
    gamma = (S - 1) / S
    d = np.linalg.solve((np.eye(S) - gamma * C).T, np.full(S, (1 - gamma) / S)).reshape(n, m, n)
    q = d.sum(axis=0)
    return np.einsum("ijk,jk->i", z, q), d.sum(axis=(1, 2)), q


def bound(low, high, same, i, *, upper):
    """Return an end of the score of algorithm i, by linear programming over all transition matrices
    within their bounds.
    """
    n, m, _ = low.shape
    S, eta = n * m * n, 1 / (n - 1 + n * m - 1)
    gamma, lo, hi = (S - 1) / S, low.ravel(), high.ravel()
    cells = [(i, j, k) for i in range(n) for j in range(m) for k in range(n)]
    lower, top = np.zeros((S, S)), np.zeros((S, S))
    for s, t, who in edges(n, m):
        (ls, hs), (lt, ht) = (
            ((lo[s], hi[s]), (lo[t], hi[t])) if who == "p" else ((-hi[s], -lo[s]), (-hi[t], -lo[t]))
        )
        a, b = cells[s], cells[t]
        equals = same(a[0], a[1], b[0]) if who == "p" else a[1] == b[1] and same(a[2], a[1], b[2])
        if close(ls, lt) and close(hs, ht) and (equals or (close(ls, hs) and close(lt, ht))):
            lower[s, t] = top[s, t] = eta * TIE
        elif lt > hs:
            lower[s, t] = top[s, t] = eta
        elif not ls > ht:
            top[s, t] = eta
    np.fill_diagonal(lower, 1 - top.sum(axis=1))
    np.fill_diagonal(top, 1 - (lower.sum(axis=1) - np.diag(lower)))
    reward = np.tile((high if upper else -low)[i].ravel(), n)
    # minimise sum v with v_s >= R_s + gamma max_C C v: the dual of the inner maximum has mu_s and
    # a, b >= 0.
    pairs = [(s, t) for s in range(S) for t in range(S) if top[s, t] > 0]
    P = len(pairs)
    cost = np.concatenate([np.ones(S), np.zeros(S + 2 * P)])
    unequal, equal = np.zeros((S, 2 * S + 2 * P)), np.zeros((P, 2 * S + 2 * P))
    unequal[:, :S], unequal[:, S : 2 * S] = -np.eye(S), gamma * np.eye(S)
    for e, (s, t) in enumerate(pairs):
        unequal[s, 2 * S + e], unequal[s, 2 * S + P + e] = gamma * top[s, t], -gamma * lower[s, t]
        equal[e, S + s], equal[e, t], equal[e, 2 * S + e], equal[e, 2 * S + P + e] = 1, -1, 1, -1
    free = [(None, None)] * (2 * S) + [(0, None)] * (2 * P)
    found = linprog(
        cost, A_ub=unequal, b_ub=-reward, A_eq=equal, b_eq=np.zeros(P), bounds=free, method="highs"
    )
    assert found.status == 0, found.message
    value = (1 - gamma) * found.fun / S
    return value if upper else -value


def resample(samples, words):
    """Draw one bootstrap resample: word w draws sample floor(w T / 2³²) of the sorted samples of
    its cell.
    """
    return {
        cell: np.sort(x)[(words[cell].astype(np.uint64) * np.uint64(len(x))) >> np.uint64(32)]
        for cell, x in samples.items()
    }
