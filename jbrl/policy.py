"""The policy to take home: a trained agent that decides in a loop of the caller's.

    policy = jbrl.policy("BEB", "GC", seed=0)
    policy.save("out/policy")
    policy = jbrl.load_policy("out/policy")      # in another process
    life = policy.start(seed=0)
    action = life.act(observation)
    life.observe(reward, next_observation, terminated=False, truncated=False)

The folder holds

    arrays.npz    what was learned and found, and the distribution that is the prior
    README.md     what it is and how it is used
    policy.json   agent, parameters, versions, what is observed and done, limits promised, latency
                  measured, and digests of the other files

Nothing in it is executed or unpickled. Agents and environments are found by their names in the
registers of this process.
"""

import dataclasses
import hashlib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jbrl.agents.complete import is_oracle, plain_parameters
from jbrl.agents.registry import find_agent, registered_name, shown_name
from jbrl.base import notebook
from jbrl.base.errors import JbrlError, JbrlWarning, as_path, check_count, shown
from jbrl.base.files import naming, write_whole
from jbrl.base.plugins import is_outside, source_digest
from jbrl.environments.spec import Box, Episodes, Lifetime, OneHot, Steps
from jbrl.play import compilation, offline
from jbrl.play import compile_cache as cache
from jbrl.play.batching import host_leaves, run_inline
from jbrl.play.machine import versions
from jbrl.play.play import (
    PlayedEpisodes,
    lifetime_of,
    make_run,
    play_episodes,
    resolve_agent,
    resolve_problem,
)
from jbrl.play.protocol import Played, Protocol, Trained
from jbrl.play.stepping import Latency, Player, Stepping, measure
from jbrl.play.unit import Unit, canonical, select
from jbrl.policy_folder import (
    ABOUT,
    ARRAYS,
    FORMAT,
    MDPS,
    check_figures,
    compare_versions,
    read_about,
    read_agent,
    read_arrays,
    read_knowledge,
    read_problem,
    write_folder,
)
from jbrl.problems.hosted import HostProblem, host_problem, is_host_environment
from jbrl.problems.lookup import problem as find_problem
from jbrl.problems.prior import Prior
from jbrl.problems.problem import DirichletProblem, Problem
from jbrl.report.text import escape
from jbrl.rollout import faults
from jbrl.rollout.contract import Agent, MadeOfWeights, as_arrays
from jbrl.study.file import recorded_study
from jbrl.study.progress import Progress
from jbrl.study.resume import StoredFindings
from jbrl.study.storage import files
from jbrl.study.storage.archive import Archive
from jbrl.study.storage.store import Store


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """A trained agent that decides.

    Attributes:
      agent: as it was given, with its parameters.
      player: what plays, as pure functions.
      problem: whose prior it was trained on; prior: as the agent was given it.
      seed: of the training.
      stream: folded into the keys of lifetimes where not 0, as `EnvironmentProblem.stream`.
      learned: what an agent that searches offline has found.
      offline_seconds, compile_seconds: wall seconds of the training, and of compiling it.
      limits: promised by who saved it, numbers or texts by name.
      measured: latency where it was saved.
      origin: of one from a study, where what it knows comes from, in words.
    """

    agent: Agent
    player: Player = dataclasses.field(repr=False)
    problem: Problem
    prior: Prior = dataclasses.field(repr=False)
    seed: int
    stream: int = dataclasses.field(default=0, repr=False)
    learned: offline.Learned | None = dataclasses.field(default=None, repr=False)
    offline_seconds: float = 0.0
    compile_seconds: float = 0.0
    limits: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    measured: Latency | None = None
    origin: str = dataclasses.field(default="", repr=False)

    @property
    def name(self) -> str:
        """Name of the agent: as registered, else `module:Class`."""
        return _name(self.agent)

    def start(self, seed: int = 0, *, index: int = 0, lifetimes: int | None = None) -> "Life":
        """Start a lifetime: number `index` of `seed`, which decides as that of `jbrl.play` and of a
        study does, given the same outcomes: to the last bit on finite MDPs; where observations are
        arrays, up to rounding.

        Args:
          lifetimes: played at once, numbered from `index`; observations, rewards and actions have
            an axis [n] in front. None: one, whose actions are integers.
        """
        check_count("seed", seed, 2**32 - 1, low=0)
        return Life(self, seed, index, lifetimes)

    def resume(self, path: str | Path) -> "Life":
        """Go on with a lifetime that `Life.save` has saved, with the same bits.

        Raises:
          JbrlError: the file is missing or damaged, or of another policy.
        """
        header, arrays = read_arrays(as_path("path", path))
        wanted = {"kind": "life", "format": FORMAT, "policy": self.digest}
        if header | wanted != header:
            raise JbrlError(f"{path}: no life of this policy: expected one that it has saved")
        names = ("seed", "index", "lifetimes", "decisions")
        values: list[Any] = [header.get(name) for name in names]
        seed, index, lifetimes, decisions = values
        try:
            check_count("decisions", decisions, low=0)
            check_count("seed", seed, 2**32 - 1, low=0)
            life = Life(self, seed, index, lifetimes)
            life.restore(arrays, decisions)
        except (JbrlError, KeyError, TypeError) as error:
            raise JbrlError(f"{path}: not as `save` writes it: {error}") from None
        return life

    def functions(self) -> Player:
        """Return the pure functions `reset(key, index)`, `act(life, observation)`, which returns
        the action and the life, and `observe(life, reward, next_observation, terminated,
        truncated)`, for `jax.jit`, `jax.vmap` and programs of one's own. The object is a pytree.
        """
        return self.player

    def play(
        self, env: Any, *, episodes: int = 1, seed: int = 0, max_steps: int = 100_000
    ) -> PlayedEpisodes:
        """Play one lifetime of some episodes in an environment of Gymnasium, learning on.

        Args:
          seed: of the lifetime, and of the first reset of the environment.
          max_steps: within which each episode has to end.

        Returns: undiscounted returns and steps of the episodes, and seconds of the decisions.

        Raises:
          JbrlError: no such environment, or its observations or actions are not those of the
            policy.
        """
        if not is_host_environment(env):
            raise JbrlError(
                f"environment {shown(env)}: expected one of Gymnasium, such as "
                "gymnasium.make('CartPole-v1')"
            )
        offered, spec = host_problem(env).spec, self.player.spec
        seen, known = offered.observation, spec.observation
        vector = isinstance(known, OneHot) and seen.shape == (known.n,)
        same = (seen.shape, getattr(seen, "n", 0)) == (known.shape, getattr(known, "n", 0))
        if offered.actions != spec.actions or not (same or vector):
            raise JbrlError(f"environment {shown(env)} has {offered}: expected {spec}")
        return play_episodes(self.start(seed), env, Episodes(episodes, max_steps), seed)

    def latency(self, n: int = 1000, *, lifetimes: int | None = None) -> Latency:
        """Measure what `act` and `observe` take in a loop, dispatch included, over `n` decisions in
        an environment drawn from the prior.
        """
        return measure(self.player, self.prior, n, lifetimes)

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of what decides: agent, parameters, what was learned.

        Raises:
          JbrlError: the agent is a strategy that was trained.
        """
        content = hashlib.sha256(canonical(self._identity()).encode())
        for name, array in sorted(self._arrays().items()):
            content.update(f"{name}{array.dtype.str}{array.shape}".encode())
            content.update(np.ascontiguousarray(array).tobytes())
        return content.hexdigest()

    # ---- the folder ----

    def save(
        self,
        folder: str | Path,
        *,
        limits: Mapping[str, Any] | None = None,
        decisions: int | None = 1000,
    ) -> Path:
        """Write the policy as a new folder, whole or not at all.

        Args:
          limits: promised, seconds as floats or texts by name, for example `{"online": "1 ms"}`.
          decisions: over which the latency that is written down is measured, unless it was before;
            None: it is not measured.

        Raises:
          JbrlError: the folder exists or cannot be written, or another process could not find the
            agent or the problem by its name.
        """
        target = as_path("folder", folder)
        if decisions is not None:
            check_count("decisions", decisions)
        if limits is not None and not isinstance(limits, Mapping):
            raise JbrlError(
                f'limits = {shown(limits)}: expected a dict such as {{"online": "1 ms"}}'
            )
        with naming(target, "written"):
            if target.exists():
                raise JbrlError(f"{target}: exists: expected the name of a new folder")
        refuse_weights(self.agent)
        check_findable(self.problem, self.agent)
        kept = dataclasses.replace(
            self,
            limits=dict(limits or self.limits),
            measured=self.measured or (self.latency(decisions) if decisions else None),
        )
        write_folder(target, kept._about(), kept._arrays(), kept._card())
        return target

    def _identity(self) -> dict[str, Any]:
        """Return all that decides beside arrays, as plain data."""
        refuse_weights(self.agent)
        kind = type(getattr(self.agent, "base", self.agent))
        lifetime = self.prior.lifetime
        return {
            "format": FORMAT,
            "agent": {
                "name": self.name,
                "parameters": plain_parameters(self.agent),
                "version": self.agent.version,
                "source": source_digest(kind) if is_outside(kind) else None,
            },
            "problem": {
                "name": self.problem.short_name,
                "digest": self.problem.digest,
                "hosted": isinstance(self.problem, HostProblem),
            },
            "lifetime": {type(lifetime).__name__: dataclasses.asdict(lifetime)},
            "discount": float(self.prior.discount),
            "in_blocks": self.player.in_blocks,
            "stream": self.stream,
        }

    def _about(self) -> dict[str, Any]:
        return {
            **self._identity(),
            "seed": self.seed,
            "policy": self.digest,
            **self._spaces(),
            "limits": dict(self.limits),
            "latency": dataclasses.asdict(self.measured) if self.measured else None,
            "offline_seconds": self.offline_seconds,
            "compile_seconds": self.compile_seconds,
            "learned": self.learned.describe() if self.learned else None,
            "versions": versions(),
        }

    def _spaces(self) -> dict[str, Any]:
        """Return what is observed and done, for readers."""
        seen, actions = self.player.spec.observation, self.player.spec.actions
        shape = {"shape": list(seen.shape), "dtype": np.dtype(seen.dtype).name}
        sizes = {} if seen.shape or not hasattr(seen, "n") else {"n": seen.n}
        if isinstance(seen, Box) and isinstance(self.problem, HostProblem):
            ends: Any = {"low": seen.low, "high": seen.high}
            sizes |= {name: list(v) for name, v in ends.items() if isinstance(v, tuple)}
        return {
            "observation": {"kind": type(seen).__name__, **sizes, **shape},
            "action": {"kind": "Discrete", "n": actions.n, "shape": [], "dtype": "int32"},
        }

    def _arrays(self) -> dict[str, np.ndarray]:
        found = {
            f"learned/{k}": v for k, v in (self.learned.arrays if self.learned else {}).items()
        }
        if isinstance(self.problem, DirichletProblem):
            mdps = self.problem.mdps
            found |= {f"prior/{name}": np.asarray(getattr(mdps, name)) for name in MDPS}
        if _trains(self.player.agent):
            leaves = enumerate(host_leaves(self.player.knowledge))
            found |= {f"knowledge/{i:04d}": v for i, v in leaves}
        return found

    def _card(self) -> str:
        """Return the page that people read."""
        facts = {
            "agent": f"{self.name}, version {self.agent.version}",
            "parameters": ", ".join(
                f"{k} = {shown(v, str)}" for k, v in plain_parameters(self.agent).items()
            ),
            "prior": f"{self.problem.short_name} ({self.problem.digest[:12]})",
            "observation": str(self.player.spec.observation),
            "action": f"an integer from 0 to {self.player.spec.actions.n - 1}",
            "trained": f"in {notebook.duration(self.offline_seconds)}, seed {self.seed}",
            "origin": self.origin,
            **{
                f"limit {name}": notebook.duration(v) if isinstance(v, float) else str(v)
                for name, v in self.limits.items()
            },
        }
        if self.measured:
            facts |= {f"latency, {k}": v for k, v in self.measured.facts().items()}
        facts["versions"] = ", ".join(f"{k} {v}" for k, v in versions().items())
        rows = "\n".join(
            f"| {escape(name)} | {escape(value)} |" for name, value in facts.items() if value
        )
        return f"""# Policy: {escape(self.name)} for {escape(self.problem.short_name)}

| | |
|---|---|
{rows}

## Use

    import jbrl
    policy = jbrl.load_policy("this folder")
    life = policy.start(seed=0)
    action = life.act(observation)
    life.observe(reward, next_observation, terminated=False, truncated=False)

The latency is that of the machine where the policy was saved; `policy.latency()` measures it here.
What it earns holds for environments drawn from its prior; it is not known elsewhere.
"""

    def _repr_html_(self) -> str:
        known = {"agent": self.name, "prior": self.problem.short_name, "seed": self.seed}
        shown_latency = self.measured.facts() if self.measured else {}
        return notebook.facts(known | {f"latency, {k}": v for k, v in shown_latency.items()})


class Life(Stepping):
    """A lifetime in a loop of the caller's: `act`, `observe`, and `save` for a restart."""

    def __init__(self, policy: Policy, seed: int, index: int, lifetimes: int | None) -> None:
        key = jax.random.key(seed)
        if policy.stream:
            key = jax.random.fold_in(key, policy.stream)
        super().__init__(policy.player, key, index, lifetimes)
        place = {"seed": seed, "index": index, "lifetimes": lifetimes}
        self._policy, self._place = (
            policy,
            {k: v if v is None else int(v) for k, v in place.items()},
        )

    def save(self, path: str | Path) -> Path:
        """Write the lifetime so far as one sealed file, in place of what is there; `Policy.resume`
        goes on with the same bits.

        Raises:
          JbrlError: the file cannot be written, a decision was interrupted, or the agent is a
            strategy that was trained.
        """
        target = as_path("path", path)
        header = {
            "kind": "life",
            "format": FORMAT,
            "policy": self._policy.digest,
            "decisions": self.decisions,
            **self._place,
        }
        with naming(target, "written"):
            write_whole(target, files.pack(header, self.arrays(), compress=False))
        return target


def policy(
    agent: Agent | str | Played,
    prior: str | Problem | None = None,
    *,
    seed: int = 0,
    horizon: int | None = None,
    episodes: int | None = None,
    discount: float = 0.95,
    checkpoint: offline.SearchCheckpoint | None = None,
) -> Policy:
    """Train an agent on its prior, and return it as a policy.

    Args:
      agent: with its parameters, or a name, as for `jbrl.play`; or what that has returned.
      prior: a problem, its name, or the path of its JSON file.
      seed: of the training, as that of a study.
      horizon, episodes, discount: as for `jbrl.play`.
      checkpoint: keeps what a search finds, so that an interrupted one goes on.

    Raises:
      JbrlError: an agent that cannot use the prior, or that has to be shown the environment.
    """
    run_inline()
    if isinstance(agent, Played):
        if agent.trained is None:
            raise JbrlError("these results do not keep the agent: expected those of jbrl.play")
        return of_trained(agent.trained)
    if prior is None:
        raise JbrlError('prior: expected a problem, for example prior="GC"')
    made, name = resolve_agent(agent)
    told = resolve_problem(prior)
    protocol = Protocol(told, told, 1, seed, lifetime_of(told, horizon, episodes), discount)
    protocol.check_agent(made, name)
    return train(made, protocol, checkpoint)


def train(
    agent: Agent, protocol: Protocol, checkpoint: offline.SearchCheckpoint | None = None
) -> Policy:
    """Train an agent as a unit of these rules does."""
    _refuse_oracle(agent)
    run = make_run(agent, protocol)
    run.learn(checkpoint)
    return of_trained(run.trained())


def of_unit(folder: str | Path, unit: str, progress: Progress | None = None) -> Policy:
    """Return the policy of a unit of a study, by what its agent has found there; what the results
    do not keep is learned again from the seed of the unit, and findings are kept beside them.

    Args:
      folder: results of the study, or an archive of them.
      unit: its label, a regular expression that matches this label alone, or the beginning of
        its id.

    Warns:
      JbrlWarning: another version of its agent or problem has played the unit.

    Raises:
      JbrlError: not exactly one unit fits, or the study names what is not found here.
    """
    archived = Archive.is_one(folder)
    store = Archive(folder) if archived else Store(folder)
    manifest = store.manifest()
    study = recorded_study(manifest, str(folder))
    found = _the_unit(study.units, unit)
    if found.id not in {listed["id"] for listed in manifest["units"]}:
        warnings.warn(
            f"{folder}: '{found.label}' was played there by another version of its agent or "
            "problem: this policy is of the version here, which may score differently",
            JbrlWarning,
            stacklevel=2,
        )
    with compilation.compiling(study.settings.compile):
        checkpoint, read = None, False
        if found.knowledge_id and isinstance(store, Store):
            platform = jax.devices()[0].platform
            checkpoint = StoredFindings(found, store, progress or Progress(), platform)
            read = checkpoint.learned() is not None
        made = train(found.agent, found.protocol, checkpoint)
    if read:
        origin = "what it has learned is read from the results"
    elif made.learned or _trains(made.player.agent):
        took = notebook.duration(made.offline_seconds)
        origin = f"learned again from seed {made.seed} in {took}: the results do not keep it"
    else:
        origin = "it knows its prior, and learns nothing else before the first decision"
    return dataclasses.replace(made, origin=origin)


def _the_unit(units: Sequence[Unit], name: str) -> Unit:
    """Return the only unit that a name stands for."""
    fits = [u for u in units if u.label == name or (len(name) >= 6 and u.id.startswith(name))]
    fits = fits or select(units, only=name, given="unit")
    if len(fits) != 1:
        some = ", ".join(f"'{u.label}'" for u in fits[:3])
        raise JbrlError(f"unit '{name}' fits {len(fits)} units ({some}, …): expected one of them")
    return fits[0]


def of_trained(trained: Trained) -> Policy:
    """Return the policy of an agent that is trained already.

    Raises:
      JbrlError: it has to be shown the environment.
    """
    _refuse_oracle(trained.given)
    rules, agent = trained.protocol, jax.device_put(trained.agent)
    return Policy(
        agent=trained.given,
        player=Player(agent, trained.knowledge, rules.prior.spec, rules.in_blocks),
        problem=rules.prior,
        prior=rules.agent_prior(),
        seed=rules.seed,
        stream=getattr(rules.test, "stream", 0),
        learned=trained.learned,
        offline_seconds=trained.offline_seconds,
        compile_seconds=trained.compile_seconds,
    )


def _refuse_oracle(agent: Agent) -> None:
    if is_oracle(agent):
        raise JbrlError(
            f"{shown_name(agent)} is shown the true environment before it plays: expected an agent "
            "that learns, such as BAMCP"
        )


def refuse_weights(agent: Agent) -> None:
    """Refuse a strategy that was trained, which has no parameters that it could be known by."""
    if isinstance(agent, MadeOfWeights):
        raise JbrlError(
            f"{type(agent).__name__} is a strategy that was trained: expected the agent that "
            "trains it, whose policy keeps the weights"
        )


def _name(agent: Agent) -> str:
    kind = type(getattr(agent, "base", agent))
    return registered_name(kind) or f"{kind.__module__}:{kind.__qualname__}"


def check_findable(problem: Problem, *agents: Agent) -> None:
    """Refuse a problem or an agent that `load_policy` could not make again."""
    for agent in agents:
        find_agent(_name(agent), Path.cwd())
    if isinstance(problem, DirichletProblem | HostProblem):
        return
    try:
        same = find_problem(problem.short_name, Path.cwd()).digest == problem.digest
    except JbrlError:
        same = False
    if not same:
        raise JbrlError(
            f"problem '{problem.short_name}' is none that a name stands for: expected one that "
            "jbrl.problem finds, such as an environment with @register_environment"
        )


def load_policy(folder: str | Path, *, compile_cache: str | Path | None = None) -> Policy:
    """Read a policy that `Policy.save` has written; nothing in the folder is executed.

    Args:
      compile_cache: directory in which this process keeps compiled programs for the next one, or
        "auto": the user's cache directory.

    Raises:
      JbrlError: a file is missing or damaged, the format, the agent or the problem is another one
        here, or the agent is of the user's own and its module is not imported.
    """
    run_inline()
    if compile_cache is not None:
        cache.use(compile_cache)
    place = as_path("folder", folder)
    about = read_about(place)
    _, arrays = read_arrays(place / ARRAYS)
    try:
        found = _rebuilt(place, about, arrays)
        digest, wanted = found.digest, str(about["policy"])
        found._card()  # figures that are none are found here
        check_figures(place, about, found._spaces())
        compare_versions(place, about["versions"])
    except JbrlError:
        raise
    except Exception as error:  # of whatever stands in the place of a field
        raise JbrlError(f"{place / ABOUT}: field {error}: expected as `save` writes it") from None
    if digest != wanted:
        raise JbrlError(
            f"{place}: another policy than the one that was saved: expected the digest "
            f"{wanted[:12]}, has {digest[:12]}"
        )
    return found


def _rebuilt(place: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> Policy:
    """Return the policy, its digest still to be compared."""
    problem = read_problem(place, about, arrays)
    ((kind, fields),) = about["lifetime"].items()
    lifetime: Lifetime = {"Steps": Steps, "Episodes": Episodes}[kind](**fields)
    prior = problem.prior(lifetime, about["discount"])
    given = read_agent(place, about["agent"])
    learned = None
    if about["learned"] is not None:
        found = {
            k.removeprefix("learned/"): v for k, v in arrays.items() if k.startswith("learned/")
        }
        learned = offline.Learned.read(about["learned"], found)
    agent = jax.device_put(as_arrays(learned.strategy if learned else given))
    knowledge: Any = prior
    if _trains(agent):
        leaves = [arrays[name] for name in sorted(arrays) if name.startswith("knowledge/")]
        shapes = compilation.shapes_of(faults.train, agent, jax.random.key(0), prior)
        knowledge = read_knowledge(place, leaves, shapes)
    latency = about["latency"]
    return Policy(
        agent=given,
        player=Player(agent, knowledge, problem.spec, about["in_blocks"]),
        problem=problem,
        prior=prior,
        seed=about["seed"],
        stream=about["stream"],
        learned=learned,
        offline_seconds=about["offline_seconds"],
        compile_seconds=about["compile_seconds"],
        limits=about["limits"],
        measured=Latency(**latency) if latency else None,
    )


def _trains(agent: Agent) -> bool:
    """Return whether what the agent knows is more than its prior."""
    return type(agent).train is not Agent.train
