"""The random keys that programs use, so that tests can say that none serves two purposes."""

import collections
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step
from jbrl.environments.spec import Discrete, Spec
from jbrl.mdp import sampling

# all that jbrl takes random words with; `fold_in` makes as many keys of one as it is given numbers
USES = ("bits", "uniform", "normal", "truncated_normal", "randint", "bernoulli", "split")


class Keys:
    """The words of each key that was used, and the functions that used it, in no order."""

    def __init__(self) -> None:
        self.users: dict[tuple[int, int], list[str]] = collections.defaultdict(list)

    def add(self, user: str, words: Any) -> None:
        for first, second in np.asarray(words).reshape(-1, 2).tolist():
            self.users[first, second].append(user)

    @property
    def shared(self) -> list[str]:
        """The users of each key that served more than once."""
        jax.effects_barrier()
        return sorted(" and ".join(sorted(found)) for found in self.users.values() if found[1:])


@contextlib.contextmanager
def recorded() -> Iterator[Keys]:
    """Collect the keys that programs use which are traced, and played, within.

    A key is used by the functions of `USES`, and where its words are read (`jax.random.key_data`).
    """
    keys, read = Keys(), jax.random.key_data

    def recording(function: Any) -> Any:
        def call(key: Any, *args: Any, **options: Any) -> Any:
            frame = sys._getframe(1)
            user = f"{frame.f_code.co_qualname} of {frame.f_back.f_code.co_qualname}"
            jax.debug.callback(lambda words: keys.add(user, words), read(key))
            return function(key, *args, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in (*USES, "key_data"):
            patch.setattr(jax.random, name, recording(getattr(jax.random, name)))
        yield keys


@record
class Die(Environment):
    """A die that each reset and each step throws: from 0 to 5, which is the observation and the
    reward. A 5 terminates an episode, a 4 cuts it off.
    """

    @property
    def spec(self) -> Spec:
        return Spec(Discrete(6), Discrete(2))

    def reset(self, key: Any) -> tuple[Any, Any]:
        found = sampling.uniform_index(sampling.uniforms(key)[0], 6)
        return found, found

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Step]:
        found = sampling.uniform_index(sampling.uniforms(key)[0], 6)
        return found, Step(found, found.astype(jnp.float32), found == 5, found == 4)
