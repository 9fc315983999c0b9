"""bsuite's environments: steps a second beside gymnax, and the whole sweep with random actions.

python benchmarks/bsuite.py [gymnax] [sweep] [--repeat R] [--out FILE]

`gymnax` needs gymnax 1.0.1, and six, which it does not declare; both libraries then step 2,048
environments in one process, on one device, in the same loop: keys of 128 steps at a time, automatic
reset, nothing recorded, in turns. Random actions are drawn as each library does it: by gymnax's
`action_space(params).sample(key)`, by the words of the key in jbrl. `sweep` plays all 468 ids with
their full number of episodes, in a process of its own, from the start of the program to its end.

Prints one JSON line per measurement and adds it to FILE (default:
benchmarks/results/bsuite-cpu2.jsonl).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from jbrl.environments.bsuite_tasks import (  # noqa: E402
    Bandit,
    Catch,
    DeepSea,
    DiscountingChain,
    MemoryChain,
    UmbrellaChain,
)
from jbrl.environments.environment import Environment, as_arrays  # noqa: E402
from jbrl.mdp.sampling import uniforms  # noqa: E402
from jbrl.play.machine import machine, versions  # noqa: E402

LANES, BLOCK, BLOCKS = 2048, 128, 8
# gymnax's name and sizes, ours with the same settings, how many times as fast it should be.
PAIRS: tuple[tuple[str, dict[str, int], dict[str, int], Environment, float], ...] = (
    ("Catch-bsuite", {}, {}, Catch(), 1.5),
    ("DeepSea-bsuite", {"size": 10}, {}, DeepSea(10), 1.5),
    ("MemoryChain-bsuite", {}, {"memory_length": 5}, MemoryChain(5), 1.5),
    (
        "UmbrellaChain-bsuite",
        {"n_distractor": 20},
        {"chain_length": 20},
        UmbrellaChain(20, 20),
        1.5,
    ),
    ("DiscountingChain-bsuite", {}, {}, DiscountingChain(), 1.5),
    ("SimpleBandit-bsuite", {}, {}, Bandit(), 10.0),
)


def loop(step: Callable, choose: Callable) -> Callable:
    """Return a compiled function that plays blocks of (state, observation) of all lanes."""

    def one(key: Any, carry: Any) -> Any:
        def block(carry: Any, number: Any) -> tuple[Any, Any]:
            own = jax.random.fold_in(key, number)
            keys = [jax.random.split(jax.random.fold_in(own, k), BLOCK) for k in (0, 1)]

            def turn(carry: Any, both: Any) -> tuple[Any, Any]:
                choice, noise = both
                state, observation, reward, ended = step(noise, carry[0], choose(choice))
                return (state, observation, carry[2] + reward, carry[3] + ended), None

            return jax.lax.scan(turn, carry, (keys[0], keys[1]))[0], None

        return jax.lax.scan(block, carry, jnp.arange(BLOCKS))[0]

    return jax.jit(jax.vmap(one))


def ours(environment: Environment) -> tuple[Callable, Callable, Callable]:
    """Return reset, step with automatic reset, and the choice of a random action."""
    arrays: Any = as_arrays(environment)
    n_actions = environment.spec.actions.n

    def step(key: Any, state: Any, action: Any) -> tuple:
        after, step = arrays.step(key, state, action)
        ended = step.terminated | step.truncated
        begun = arrays.reset(jax.random.fold_in(key, 1))
        state, observation = jax.tree.map(
            lambda a, b: jnp.where(ended, a, b), begun, (after, step.observation)
        )
        return state, observation, step.reward, ended

    return arrays.reset, step, lambda key: (uniforms(key)[0] * n_actions).astype(jnp.int32)


def theirs(
    name: str, sizes: dict[str, int], settings: dict[str, int]
) -> tuple[Callable, Callable, Callable]:
    """As `ours`."""
    import gymnax

    environment, params = gymnax.make(name, **sizes)
    params = params.replace(**settings)

    def reset(key: Any) -> tuple:
        observation, state = environment.reset(key, params)
        return state, observation

    def step(key: Any, state: Any, action: Any) -> tuple:
        observation, state, reward, terminated, truncated, _ = environment.step(
            key, state, action, params
        )
        return state, observation, jnp.float32(reward), terminated | truncated

    return reset, step, environment.action_space(params).sample


def player(parts: tuple[Callable, Callable, Callable]) -> Callable[[], float]:
    """Return what plays all blocks and returns the steps a second."""
    reset, step, choose = parts
    keys = jax.random.split(jax.random.key(0), LANES)
    state, observation = jax.jit(jax.vmap(reset))(keys)
    carry = (state, observation, jnp.zeros(LANES), jnp.zeros(LANES, jnp.int32))
    run = loop(step, choose)
    jax.block_until_ready(run(keys, carry))

    def play() -> float:
        started = time.perf_counter()
        jax.block_until_ready(run(keys, carry))
        return LANES * BLOCK * BLOCKS / (time.perf_counter() - started)

    return play


def beside_gymnax(repeat: int) -> Iterator[dict[str, Any]]:
    for name, sizes, settings, environment, wanted in PAIRS:
        mine, other = player(ours(environment)), player(theirs(name, sizes, settings))
        pairs = [(mine(), other()) for _ in range(repeat)]
        ratios = [a / b for a, b in pairs]
        yield {
            "measured": "steps a second beside gymnax",
            "environment": name,
            "wanted": wanted,
            "jbrl": float(f"{statistics.median(a for a, _ in pairs):.3g}"),
            "gymnax": float(f"{statistics.median(b for _, b in pairs):.3g}"),
            "ratio": round(statistics.median(ratios), 2),
            "least": round(min(ratios), 2),
            "greatest": round(max(ratios), 2),
        }


def sweep(repeat: int) -> Iterator[dict[str, Any]]:
    """Measure wall seconds of `jbrl run` on the whole sweep, compilation included, nothing
    cached.
    """
    text = """
        [study]
        name = "Random on bsuite"
        n_environments = 1
        [[experiments]]
        name = "bsuite"
        test = "bsuite/all"
        [[agents]]
        algorithm = "Random"
    """
    del repeat
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "study.toml"
        study.write_text(text)
        command = [sys.executable, "-m", "jbrl", "run", str(study), "--out", f"{folder}/out"]
        started = time.perf_counter()
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        seconds = time.perf_counter() - started
    yield {"measured": "the whole sweep, Random", "wanted": 180, "seconds": round(seconds, 1)}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parts = {"gymnax": beside_gymnax, "sweep": sweep}
    parser.add_argument("parts", nargs="*", help=f"{', '.join(parts)}; default: all")
    parser.add_argument("--repeat", type=int, default=5)
    default = ROOT / "benchmarks" / "results" / "bsuite-cpu2.jsonl"
    parser.add_argument("--out", type=Path, default=default)
    chosen = parser.parse_args()
    for name in chosen.parts:
        if name not in parts:
            parser.error(f"part '{name}': expected {', '.join(parts)}")
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "machine": machine(),
    }
    with chosen.out.open("a") as file:
        for part in chosen.parts or parts:
            for row in parts[part](chosen.repeat):
                print(json.dumps(row), flush=True)
                file.write(json.dumps({**row, **about}) + "\n")


if __name__ == "__main__":
    main()
