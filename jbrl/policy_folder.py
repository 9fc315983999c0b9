"""The folder of a policy: its files, their digests, and what they name found again.

Nothing is parsed before its digest is found right, nothing is unpickled, and no module is imported
because a file names it.
"""

import hashlib
import secrets
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jbrl.agents.complete import build
from jbrl.agents.registry import AGENTS, find_agent
from jbrl.base.errors import JbrlError, JbrlWarning, check_count, shown
from jbrl.base.files import check_file, naming, write_whole
from jbrl.base.plugins import without_imports
from jbrl.environments.spec import Box, Discrete, Spec
from jbrl.mdp.dirichlet import distribution
from jbrl.play.batching import is_key
from jbrl.play.machine import versions
from jbrl.play.unit import canonical
from jbrl.problems.hosted import HostProblem
from jbrl.problems.lookup import problem as find_problem
from jbrl.problems.problem import DirichletProblem, Problem
from jbrl.rollout.contract import Agent
from jbrl.study.storage import files

FORMAT = 1  # of folders and of saved lives; raised when either changes its meaning
ARRAYS, CARD, ABOUT = "arrays.npz", "README.md", "policy.json"
MDPS = ("concentrations", "rewards", "initial_state")


def write_folder(
    target: Path, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray], card: str
) -> None:
    """Write the files as a new folder: a reader sees all of it or nothing.

    Raises:
      JbrlError: it cannot be written.
    """
    contents = {ARRAYS: files.pack({}, arrays), CARD: card.encode()}
    seals = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    try:
        canonical(about["limits"])  # refuses NaN, which is none of JSON
        contents[ABOUT] = files.pack_json({**about, "files": seals})
    except (TypeError, ValueError) as error:
        raise JbrlError(
            f"limits = {shown(about['limits'])}: {error}: expected plain data"
        ) from None
    temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}.tmp"
    try:
        with naming(target, "written"):
            temporary.mkdir(parents=True)
            for name, content in contents.items():
                write_whole(temporary / name, content)
            temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_about(place: Path) -> dict[str, Any]:
    """Return the content of `policy.json`, after checking the digests of all files."""
    for name in (ABOUT, ARRAYS, CARD):
        check_file(place / name)
    path = place / ABOUT
    try:
        about = files.unpack_json(path.read_bytes())
        seals = about["files"]
        for name in (ARRAYS, CARD):
            path = place / name
            if hashlib.sha256(path.read_bytes()).hexdigest() != seals[name]:
                raise files.DamagedError("its content does not match its digest in policy.json")
    except OSError as error:
        raise JbrlError(f"{path}: cannot be read: {error.strerror}") from None
    except (files.DamagedError, KeyError, TypeError) as error:
        raise JbrlError(f"{path}: not what was saved: {error}") from None
    if about.get("format") != FORMAT:
        raise JbrlError(
            f"{place / ABOUT}: format = {shown(about.get('format'))}: expected {FORMAT}, that of "
            f"jbrl {versions()['jbrl']}"
        )
    return about


def read_problem(place: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> Problem:
    """Return the problem of the prior: made of arrays, or found by its name."""
    named = about["problem"]
    name = named["name"]
    if named["hosted"]:
        seen, actions = about["observation"], about["action"]
        ends = (tuple(seen[end]) for end in ("low", "high") if end in seen)
        box = seen["kind"] == "Box"
        known = Box(tuple(seen["shape"]), *ends) if box else Discrete(seen["n"])
        return HostProblem(name, name, spec=Spec(known, Discrete(actions["n"])))
    if f"prior/{MDPS[0]}" in arrays:
        mdps = distribution(*(arrays[f"prior/{field}"] for field in MDPS))
        problem: Problem = DirichletProblem(name, name, mdps)
    else:
        with without_imports(f"{place}: problem '{name}'"):
            problem = find_problem(name, Path.cwd())
    if problem.digest != named["digest"]:
        raise JbrlError(
            f"{place}: problem '{name}' is another one here: expected the digest "
            f"{named['digest'][:12]}, has {problem.digest[:12]}"
        )
    return problem


def read_agent(place: Path, named: dict[str, Any]) -> Agent:
    """Return the agent, found by its name.

    Raises:
      JbrlError: it is not there, or behaves otherwise here.
    """
    name = named["name"]
    if named["source"] and ":" not in name and name not in AGENTS:
        raise JbrlError(
            f"{place}: agent '{name}' is of the user's own: expected the module that registers it "
            "to be imported before the policy is loaded"
        )
    with without_imports(f"{place}: agent '{name}'"):
        found = find_agent(name, Path.cwd())
    agent, _ = build(found.agent, named["parameters"], str(place / ABOUT))
    for field, here in (("version", agent.version), ("source", found.source)):
        if named[field] != here:
            raise JbrlError(
                f"{place}: agent '{name}', {field} = {shown(named[field])}: expected {here!r}, "
                "that of this installation: train and save the policy again"
            )
    return agent


def read_knowledge(place: Path, leaves: list[np.ndarray], shapes: Any) -> Any:
    """Return what was learned, in the structure in which the agent learns it here."""
    wanted, structure = jax.tree.flatten(shapes)
    fits = len(leaves) == len(wanted) and all(
        is_key(want) or (leaf.shape, leaf.dtype) == (want.shape, want.dtype)
        for leaf, want in zip(leaves, wanted, strict=True)
    )
    if not fits:
        raise JbrlError(f"{place / ARRAYS}: expected the arrays that the agent learns here")
    placed = jax.device_put(leaves)
    keyed = (
        jax.random.wrap_key_data(leaf) if is_key(want) else leaf
        for leaf, want in zip(placed, wanted, strict=True)
    )
    return jax.tree.unflatten(structure, list(keyed))


def check_figures(place: Path, about: dict[str, Any], spaces: dict[str, Any]) -> None:
    """Refuse figures that decide nothing, and are read all the same, where they are none."""
    canonical(about)  # NaN and infinity
    check_count(f"{place / ABOUT}: seed", about["seed"], 2**32 - 1, low=0)
    times = [(name, about[name]) for name in ("offline_seconds", "compile_seconds")]
    for name, value in (*times, *(about["latency"] or {}).items()):
        if type(value) not in (int, float) or value < 0:
            raise JbrlError(f"{place / ABOUT}: {name} = {shown(value)}: expected a number from 0")
    for name, space in spaces.items():
        if about[name] != space:
            raise JbrlError(f"{place / ABOUT}: {name} = {shown(about[name])}: expected {space}")


def compare_versions(place: Path, saved: dict[str, str]) -> None:
    """Warn of other versions, whose bits may differ."""
    here = versions()
    others = [
        f"{name} {saved.get(name)}, here {here[name]}"
        for name in ("jbrl", "jax", "jaxlib")
        if saved.get(name) != here[name]
    ]
    if others:
        warnings.warn(
            f"{place}: saved with {'; '.join(others)}: decisions may differ in rare cases",
            JbrlWarning,
            stacklevel=3,
        )


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and arrays of a sealed file."""
    check_file(path)
    try:
        header, arrays, _ = files.unpack(path.read_bytes())
    except OSError as error:
        raise JbrlError(f"{path}: cannot be read: {error.strerror}") from None
    except MemoryError as error:
        raise JbrlError(
            f"{path}: cannot be read: {error or 'the memory does not suffice'}"
        ) from None
    except files.DamagedError as error:
        raise JbrlError(f"{path}: not what was saved: {error}") from None
    return header, arrays
