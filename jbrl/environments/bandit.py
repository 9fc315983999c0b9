"""Bandit: arms whose rewards are fixed, one pull per episode."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, Lifetime, Spec


@record
class BanditState:
    """State of a bandit: the regret of the last pull."""

    regret: jax.Array  # [] float32, 0 before the pull


@register_environment("Bandit", cite="osband2020bsuite")
class Bandit(Environment[BanditState]):
    """Bandit of bsuite: pull one of 11 arms per episode, whose rewards are 0 to 1 by steps of 0.1.

    Observation: always 1, at the start and at the end. The order of the rewards is fixed: it is the
    original's, bit for bit, drawn by NumPy's `RandomState(mapping_seed)`. There is no noise.

    Metrics: `total_regret`, 1 minus the reward.

    `arms` follows from the other fields where it is None.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.
    """

    lifetime: ClassVar[Lifetime] = Episodes(10_000)

    n_arms: int = parameter(11, "number of arms", low=2, high=1000, static=True)
    mapping_seed: int = parameter(0, "seed of the order of the rewards", low=0, high=2**31 - 1)
    arms: Any = None  # [n_arms] float32, reward of each arm

    def __post_init__(self) -> None:
        if self.arms is None and isinstance(self.mapping_seed, int):  # not traced
            object.__setattr__(self, "arms", arm_rewards(self.n_arms, self.mapping_seed))

    @property
    def spec(self) -> Spec:
        return Spec(Box((1,), 0.0, 1.0), Discrete(self.n_arms))

    @property
    def typical_steps(self) -> float:
        return 1.0

    def reset(self, key: jax.Array) -> tuple[BanditState, jax.Array]:
        del key
        return BanditState(jnp.float32(0)), jnp.ones((1,), jnp.float32)

    def step(
        self, key: jax.Array, state: BanditState, action: jax.Array
    ) -> tuple[BanditState, Step]:
        del key, state
        reward = jnp.asarray(self.arms).at[action].get(mode="promise_in_bounds")
        after = BanditState(1 - reward)
        return after, Step(jnp.ones((1,), jnp.float32), reward, jnp.bool_(True), jnp.bool_(False))

    def metrics(self, state: BanditState) -> dict[str, jax.Array]:
        return {"total_regret": state.regret}


def arm_rewards(n_arms: int, seed: int) -> np.ndarray:
    """Return the reward of each arm, [n_arms] float32, as the original draws their order."""
    order = np.random.RandomState(seed).choice(n_arms, n_arms, replace=False)
    return np.linspace(0, 1, n_arms)[order].astype(np.float32)
