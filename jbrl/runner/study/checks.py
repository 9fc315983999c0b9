"""What agents may not come up with."""

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.runner.play.experiment import Chunk, Run


def check_knowledge(run: Run) -> None:
    """Refuse what an agent has learned on the prior if it is not a number: it would choose by it without an error.

    Raises:
      FloatingPointError: names the place.
    """
    for path, values in jax.tree.leaves_with_path(run.knowledge):
        if jnp.issubdtype(values.dtype, jnp.floating) and np.isnan(np.asarray(values)).any():
            raise FloatingPointError(f"{type(run.agent).__name__}.train returned NaN in {jax.tree_util.keystr(path) or 'its knowledge'}")


def check_returns(chunk: Chunk) -> Chunk:
    """The chunk, if all its returns are finite numbers.

    Raises:
      FloatingPointError: names the first MDP of which it is not.
    """
    finite = np.isfinite(chunk.returns)
    if not finite.all():
        raise FloatingPointError(f"the return on MDP {chunk.start + int(np.argmin(finite))} is not a finite number")
    return chunk
