"""Random numbers and times of the host in traced methods are refused; those of JAX are not."""

# ruff: noqa: NPY002 (what users may call)
import functools
import random
import secrets
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jbrl
from jbrl.agents import registry
from jbrl.base import host_values
from jbrl.base.errors import JbrlError
from jbrl.base.host_values import find_host_values
from jbrl.environments.environment import check_environment
from jbrl.play.protocol import Protocol
from jbrl.rollout.faults import check_host_values, programs_of


@jax.jit
def compiled(x: jax.Array) -> jax.Array:
    return x + np.random.rand()


GENERATOR, OWN = np.random.default_rng(5), random.Random(5)
RARE: dict[str, Callable[[], float]] = {
    "random": random.random,
    "numpy": np.random.rand,
    "normal": lambda: float(np.random.randn() > -2),
    "generator of the module": GENERATOR.random,
    "state of the module": np.random.RandomState(5).random_sample,
    "Random of the module": OWN.random,
}
HOST: dict[str, Callable[[jax.Array], jax.Array]] = {
    "numpy": lambda x: x + np.random.rand(),
    "one of two": lambda x: x + np.random.randint(2),
    "an array": lambda x: x + jnp.asarray(np.random.rand(50).astype(np.float32)).sum(),
    "a static value": lambda x: x + jnp.roll(jnp.arange(50.0), np.random.randint(50))[0],
    "generator": lambda x: x + np.random.default_rng().random(),
    "random": lambda x: x * random.random(),
    "clock": lambda x: x + np.float32(time.time_ns() % 2**24),
    "key of the clock": lambda x: x + jax.random.uniform(jax.random.key(time.time_ns() % 2**32)),
    "the operating system": lambda x: x + secrets.randbelow(1000) / 1000,
    "in a loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, v: v + random.random(), x),
    "in a function that JAX has cached": compiled,
}
PURE: dict[str, Callable[[jax.Array], jax.Array]] = {
    "constants": lambda x: x + jnp.asarray(np.linspace(0, 1, 50, dtype=np.float32)).sum(),
    "a seeded generator": lambda x: x + np.random.default_rng(0).random(),
    "a loop": lambda x: jax.lax.while_loop(lambda v: v < 3, lambda v: v + 1, x),
    "a key": lambda x: x + jax.random.uniform(jax.random.key(3)),
    "NumPy seeded where it is used": lambda x: x + (np.random.seed(3), np.random.rand())[1],
    "Python seeded where it is used": lambda x: x + (OWN.seed(3), OWN.random())[1],
    "a callback": lambda x: jax.pure_callback(lambda v: v * np.float32(np.random.rand()), x, x),
}
METHODS = ("train", "reset", "act", "observe")


class Host(jbrl.Agent):
    """Takes numbers from the host in one method."""

    def values(self, method, x):
        return self.take(x) if method == self.method else x

    def train(self, key, prior):
        return self.values("train", jnp.float32(0))

    def reset(self, key, knowledge):
        return self.values("reset", jnp.float32(1))

    def act(self, key, state, observation):
        return jnp.int32(0) * self.values("act", state).astype(jnp.int32), state

    def observe(self, key, state, transition):
        return self.values("observe", state)


def made(take: Callable[[jax.Array], jax.Array], method: str) -> jbrl.Agent:
    from jbrl.base.pytree import record

    return record(
        type("Mine", (Host,), {"take": staticmethod(take), "method": method, "__annotations__": {}})
    )()


@pytest.fixture(scope="module", autouse=True)
def looked_for_once():
    """Look for generators, in all objects of the process, once: those of this module are there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_values, "_generators", functools.cache(host_values._generators))
        yield


@pytest.fixture(scope="module")
def prior():
    problem = jbrl.problem("GC")
    return Protocol(problem, problem).agent_prior()


@pytest.mark.parametrize("kind", HOST)
def test_an_agent_that_takes_numbers_from_the_host_is_refused(kind, prior):
    method = METHODS[list(HOST).index(kind) % len(METHODS)]
    with pytest.raises(
        JbrlError, match=f"mine:Mine: {method} uses random numbers or times of the host"
    ):
        check_host_values(made(HOST[kind], method), "mine:Mine", prior)


@pytest.mark.parametrize("kind", RARE)
def test_a_draw_is_found_that_decides_a_rare_branch(kind, prior):
    threshold = (0.01, 2)[list(RARE).index(kind) % 2]  # almost always above, and never

    def take(x):
        return x + 1 if RARE[kind]() > threshold else x

    with pytest.raises(JbrlError, match="mine:Mine: act uses random numbers or times of the host"):
        check_host_values(made(take, "act"), "mine:Mine", prior)


def test_draws_on_the_host_are_accepted_where_nothing_is_traced(prior):
    class Drawn(Host):
        """Draws a number when it is made."""

        def __init__(self):
            self.noise = np.float32(GENERATOR.random() + random.random())

        def act(self, key, state, observation):
            return jnp.int32(self.noise), state

    check_host_values(jax.tree_util.register_static(Drawn)(), "mine:Mine", prior)


@pytest.mark.parametrize("kind", PURE)
def test_an_agent_that_keeps_to_its_key_is_accepted(kind, prior):
    method = METHODS[list(PURE).index(kind) % len(METHODS)]
    check_host_values(made(PURE[kind], method), "mine:Mine", prior)


@pytest.mark.parametrize("name", ["Random", "Optimal"])
def test_agents_of_jbrl_give_the_same_programs_each_time(name, prior):
    agent = registry.AGENTS[name].agent()
    traced = [name for name, _ in programs_of(agent, prior)]
    assert traced == [*METHODS[:1], *(["reveal"] if name == "Optimal" else []), *METHODS[1:]]
    assert find_host_values(lambda: programs_of(agent, prior)) is None


def test_what_others_draw_between_two_tracings_counts_for_no_method():
    def programs():
        np.random.seed(3)
        yield "seeded", jax.make_jaxpr(PURE["a key"])(np.float32(np.random.rand()))
        np.random.rand()

    assert find_host_values(programs) is None


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_what_cannot_be_traced_is_left_to_those_who_run_it(error, prior):
    def fail(x):
        raise error("boom")

    check_host_values(made(fail, "act"), "mine:Mine", prior)


@pytest.mark.parametrize("method", ["perturb", "reset", "step", "metrics"])
def test_an_environment_that_takes_numbers_from_the_host_is_refused(method):
    from jbrl.base.pytree import record

    class Frozen(jbrl.Environment, jbrl.Perturbed):
        """Takes numbers from the host."""

        slip: float = jbrl.parameter(0.0, "nothing")

        @property
        def spec(self):
            return jbrl.Spec(jbrl.Discrete(2), jbrl.Discrete(2))

        def host(self, name):
            return jnp.float32(np.random.rand() if name == method else 0)

        def perturb(self, key):
            return type(self)(slip=self.slip + self.host("perturb"))

        def reset(self, key):
            return self.host("reset"), jnp.int32(0)

        def step(self, key, state, action):
            return state, jbrl.Step(
                jnp.int32(0), self.host("step"), jnp.bool_(True), jnp.bool_(False)
            )

        def metrics(self, state):
            return {"x": self.host("metrics")}

    Frozen.__annotations__ = {"slip": float}
    with pytest.raises(
        JbrlError, match=f"environment 'mine': {method} uses random numbers or times of the host"
    ):
        check_environment(record(Frozen)(), "environment 'mine'")


def test_a_study_play_and_simulate_refuse_it(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "AGENTS", dict(registry.AGENTS))
    (tmp_path / "frozen_agent.py").write_text(
        "import jbrl, jax.numpy as jnp, numpy as np\n\n"
        '@jbrl.register_agent("Frozen")\nclass Frozen(jbrl.Agent):\n    "Draws once."\n\n'
        "    def reset(self, key, knowledge):\n        return jnp.float32(0)\n\n"
        "    def act(self, key, state, observation):\n"
        "        return jnp.int32(np.random.randint(3)), state\n"
    )
    monkeypatch.chdir(tmp_path)
    study = {
        "study": {"name": "x", "n_environments": 2, "horizon": 2},
        "experiments": [{"name": "GC", "test": "GC"}],
        "agents": [{"algorithm": "frozen_agent:Frozen"}],
    }
    with pytest.raises(
        JbrlError,
        match=(
            "in experiment 'GC': frozen_agent:Frozen: act uses random numbers or times of the host"
        ),
    ):
        jbrl.run(study, tmp_path / "out")
    gc, frozen = jbrl.problem("GC"), registry.AGENTS["Frozen"].agent()
    for play in (
        lambda: jbrl.play("frozen_agent:Frozen", test="GC", n_environments=2, horizon=2),
        lambda: jbrl.simulate(frozen, gc, gc.key(0)),
        lambda: jax.jit(jax.vmap(lambda i: jbrl.simulate(frozen, gc, gc.key(0), i)))(jnp.arange(2)),
    ):
        with pytest.raises(JbrlError, match="Frozen: act uses random numbers or times of the host"):
            play()
