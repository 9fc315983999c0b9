"""Policies: the decisions of a unit one at a time, folders that are whole or refused, lives that go
on after a restart, and misuse in one sentence.
"""

import dataclasses
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jbrl
from jbrl.agents.complete import is_oracle
from jbrl.agents.registry import AGENTS, register_agent
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record
from jbrl.environments.environment import drawn
from jbrl.mdp.sampling import stream
from jbrl.play import stepping
from jbrl.play.protocol import Protocol
from jbrl.policy import Policy
from jbrl.policy_folder import read_agent, read_knowledge, read_problem
from jbrl.rollout import episodes
from jbrl.rollout.contract import Agent
from jbrl.study.portfolio import suits
from jbrl.study.storage import files
from jbrl.vectorize import native
from tests.faults.cases import flip
from tests.terminal import output_of

HORIZON = 30


@pytest.fixture(scope="module")
def played():
    return jbrl.play("e-Greedy", prior="GC", n_environments=2, seed=3, horizon=HORIZON, record=True)


@pytest.fixture(scope="module")
def policy(played):
    return played.policy()


@pytest.fixture(scope="module")
def folder(policy, tmp_path_factory):
    return policy.save(tmp_path_factory.mktemp("policies") / "one", decisions=5)


def follow(life, trajectories, index, first=0, last=HORIZON):
    """Return the actions of a life to which the outcomes of a trajectory happen."""
    states, rewards = (trajectories[name][index] for name in ("states", "rewards"))
    actions = []
    for t in range(first, last):
        actions.append(life.act(states[t]))
        life.observe(rewards[t], states[t + 1])
    return actions


def test_plays_the_actions_of_the_unit(played, policy):
    for index in range(2):
        actions = follow(policy.start(seed=3, index=index), played.trajectories, index)
        assert actions == list(played.trajectories["actions"][index])


def test_several_lifetimes_at_once_play_as_each_alone(played, policy):
    life, moves = policy.start(seed=3, lifetimes=2), played.trajectories
    for t in range(HORIZON):
        np.testing.assert_array_equal(life.act(moves["states"][:, t]), moves["actions"][:, t])
        life.observe(moves["rewards"][:, t], moves["states"][:, t + 1])


def test_first_decisions_of_several_lifetimes_are_taken_in_native_code():
    policy = jbrl.policy("BOSS", "GC(n_states=4)", horizon=4)
    actions = policy.start(lifetimes=2).act([0, 0])
    assert actions.tolist() == [policy.start(index=i).act(0) for i in range(2)]


@record
class Sorting(Agent):
    """XLA has no native code for sorting."""

    def reset(self, key, knowledge):
        return key

    def act(self, key, state, observation):
        return jnp.sort(jax.random.permutation(key, 3))[observation], state

    def observe(self, key, state, transition):
        return state


@pytest.mark.parametrize("everything", [False, True])
def test_what_has_no_native_code_is_compiled_as_any_other(monkeypatch, everything):
    if everything:  # is said to have some: XLA refuses
        monkeypatch.setattr(native, "_has_code", lambda operation: True)
    policy = jbrl.policy(Sorting(), f"GC(n_states={5 + everything})", horizon=4)
    assert policy.start().act(2) == 2


def test_functions_are_pure_and_mapped(played, policy):
    moves, player = played.trajectories, policy.functions()

    def play(index, states, rewards):
        def decide(life, now):
            state, reward, reached = now
            action, life = player.act(life, state)
            return player.observe(life, reward, reached), action

        steps = (states[:-1], rewards, states[1:])
        return jax.lax.scan(decide, player.reset(jax.random.key(3), index), steps)[1]

    actions = jax.jit(jax.vmap(play))(jnp.arange(2), moves["states"], moves["rewards"])
    np.testing.assert_array_equal(actions, moves["actions"])


def score_in_blocks(policy, problem, seed, index) -> float:
    """Return the mean return per episode of a life in the environment of a unit, with its keys."""
    key = problem.key(seed)
    environment = drawn(problem.environment, stream(key, jnp.int32(index), "mdp"))
    own = stream(key, jnp.int32(index), "environment")
    state, seen = environment.reset(jax.random.fold_in(own, 2**32 - 1))
    step, reset = jax.jit(environment.step), jax.jit(environment.reset)
    life, gained, over, t = policy.start(seed=seed, index=index), [0.0], 0, 0
    while over < problem.lifetime.episodes:
        if t % episodes.BLOCK == 0:
            keys = jax.random.split(jax.random.fold_in(own, t // episodes.BLOCK), episodes.BLOCK)
        now, t = keys[t % episodes.BLOCK], t + 1
        state, found = step(now, state, jnp.int32(life.act(seen)))
        life.observe(found.reward, found.observation, found.terminated, found.truncated)
        gained[-1] += float(found.reward)
        seen = found.observation
        if found.terminated or found.truncated:
            over += 1
            gained.append(0.0)
            state, seen = reset(jax.random.fold_in(now, 1))
    return float(np.mean(gained[:-1]))


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("Q-learning", "DeepSea(size=4)"),
        pytest.param("DQN", "DeepSea(size=4)", marks=pytest.mark.slow),
    ],
)
def test_plays_the_episodes_of_the_unit(agent, name):
    settings = {"prior": name, "n_environments": 2, "seed": 1, "episodes": 60}
    played = jbrl.play(agent, **settings)
    problem = jbrl.problem(name)
    object.__setattr__(problem, "lifetime", jbrl.Episodes(60))
    assert score_in_blocks(played.policy(), problem, 1, 1) == pytest.approx(played.returns[1])


def test_a_folder_plays_the_same_actions(folder, played, policy):
    loaded = jbrl.load_policy(folder)
    assert loaded.digest == policy.digest
    actions = follow(loaded.start(seed=3, index=1), played.trajectories, 1)
    assert actions == list(played.trajectories["actions"][1])
    assert loaded.measured.decisions == 5 and "latency, " in loaded._repr_html_()
    about = json.loads((folder / "policy.json").read_text())
    assert about["observation"] == {"kind": "Discrete", "n": 5, "shape": [], "dtype": "int32"}


def test_a_folder_keeps_what_was_searched_for(tmp_path):
    policy = jbrl.policy(AGENTS["Look-ahead"].agent(decisions=2), "GC", horizon=4)
    # functions are embedded in other programs, which traced states index
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(policy.functions()))
    loaded = jbrl.load_policy(policy.save(tmp_path / "searched", decisions=5))
    assert loaded.digest == policy.digest
    jax.tree.map(np.testing.assert_array_equal, loaded.learned.strategy, policy.learned.strategy)
    alone = jbrl.policy(policy.learned.strategy, "GC", horizon=4)
    for use in (lambda: alone.digest, lambda: alone.save(tmp_path / "alone")):
        with pytest.raises(JbrlError, match="is a strategy that was trained"):
            use()


def test_a_card_shows_names_as_they_are(policy):
    told = dataclasses.replace(policy.problem, short_name="a | b\n<b>")
    card = dataclasses.replace(policy, problem=told, limits={"online": "1 ms | x"})._card()
    assert card.startswith(r"# Policy: e-Greedy for a \| b \<b\>" + "\n")
    assert r"| prior | a \| b \<b\> (" in card and r"| limit online | 1 ms \| x |" in card


def test_integers_of_numpy_are_written(tmp_path):
    one = np.int64(1)
    policy = jbrl.policy("e-Greedy", "GC", seed=one, horizon=np.int32(9))
    loaded = jbrl.load_policy(policy.save(tmp_path / "policy", decisions=one))
    assert loaded.digest == policy.digest
    assert loaded.digest == jbrl.policy("e-Greedy", "GC", seed=1, horizon=9).digest
    life = policy.start(seed=one, index=one, lifetimes=np.int64(2))
    assert loaded.resume(life.save(tmp_path / "life")).lifetimes == 2


def test_an_agent_that_no_name_stands_for_is_not_written(tmp_path):
    @jbrl.record
    class Local(AGENTS["Q-learning"].agent):
        pass

    with pytest.raises(JbrlError, match="has no agent called"):
        jbrl.policy(Local(), "GC").save(tmp_path / "local")
    with pytest.raises(JbrlError, match="has no agent called"):
        jbrl.choose("GC", candidates=[Local()], out=tmp_path)


@pytest.mark.parametrize("name", ["arrays.npz", "README.md", "policy.json"])
def test_a_damaged_byte_is_refused(folder, tmp_path, name):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    flip(tmp_path / name)
    with pytest.raises(JbrlError, match=f"{name}: not what was saved"):
        jbrl.load_policy(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(JbrlError, match=f"{name}: cannot be read"):
        jbrl.load_policy(tmp_path)


def sealed(
    folder: Path, target: Path, change: Callable[[dict], None], **arrays: np.ndarray
) -> Path:
    """A copy with other fields and arrays, sealed again as anybody could."""
    about = files.unpack_json((folder / "policy.json").read_bytes())
    change(about)
    header, found, _ = files.unpack((folder / "arrays.npz").read_bytes())
    content = files.pack(header, found | arrays)
    about["files"]["arrays.npz"] = hashlib.sha256(content).hexdigest()
    about.pop("sha256", None)
    (target / "arrays.npz").write_bytes(content)
    (target / "README.md").write_bytes((folder / "README.md").read_bytes())
    (target / "policy.json").write_bytes(files.pack_json(about))
    return target


TAMPERED = [
    (lambda about: about.pop("versions"), "field 'versions': expected as `save`"),
    (lambda about: about.update(versions="x"), "policy.json: field .*: expected as `save`"),
    (lambda about: about.update(lifetime={}), "policy.json: field .*: expected as `save`"),
    (lambda about: about.update(discount="x"), "policy.json: field .*: expected as `save`"),
    (lambda about: about.update(discount=1e308), "policy.json: field .*: expected as `save`"),
    (lambda about: about.update(limits=5), "policy.json: field .*: expected as `save`"),
    (lambda about: about.update(offline_seconds="x"), "policy.json: field .*: expected as `save`"),
    (lambda about: about["latency"].update(p99="x"), "policy.json: field .*: expected as `save`"),
    (lambda about: about["agent"].update(name="os:system"), "module 'os' has no agent"),
    (lambda about: about["problem"].update(name="GDL"), "'GDL' is another one here|another policy"),
    (lambda about: about["lifetime"].update(Steps={"steps": 10**12}), "expected an integer from 1"),
    (lambda about: about.update(format=2), "policy.json: format = 2: expected 1, that of jbrl"),
    (lambda about: about.update(seed=-1), "policy.json: seed = -1: expected an integer from 0"),
    (lambda about: about.update(compile_seconds=-1), "compile_seconds = -1: expected a number"),
    (lambda about: about["latency"].update(p99=True), "p99 = True: expected a number from 0"),
    (lambda about: about["limits"].update(online=float("nan")), "policy.json: field .*: expected"),
    (lambda about: about["action"].update(n=99), "policy.json: action = .*99.*: expected {'kind'"),
]


@pytest.mark.parametrize(("change", "said"), TAMPERED)
def test_a_folder_that_is_sealed_again_is_refused_in_a_sentence(folder, tmp_path, change, said):
    with pytest.raises(JbrlError, match=said):
        jbrl.load_policy(sealed(folder, tmp_path, change))


def test_other_numbers_and_numbers_beyond_memory_are_refused(folder, tmp_path, monkeypatch):
    nothing = dict.copy
    spoilt = {"knowledge/0000": np.full((5, 3, 5), np.nan, np.float32)}
    with pytest.raises(JbrlError, match="another policy than the one that was saved"):
        jbrl.load_policy(sealed(folder, tmp_path, nothing, **spoilt))
    monkeypatch.setattr(files, "available_memory", lambda: 2**28)
    bomb = {"knowledge/0000": np.zeros((2**26 + 1, 4), np.uint8)}
    with pytest.raises(
        JbrlError, match="npz: cannot be read: its arrays take 256 MiB, 256 MiB are"
    ):
        jbrl.load_policy(sealed(folder, tmp_path, nothing, **bomb))
    (tmp_path / "arrays.npz").unlink()
    (tmp_path / "arrays.npz").symlink_to("/dev/zero")
    with pytest.raises(JbrlError, match="npz: cannot be read: it is a pipe or a device"):
        jbrl.load_policy(tmp_path)


def test_what_was_learned_elsewhere_is_refused(tmp_path):
    wanted = [jax.ShapeDtypeStruct((2,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)]
    right = [np.zeros(2, np.float32), np.zeros((), np.int32)]
    assert read_knowledge(tmp_path, right, wanted)[1] == 0
    for other in ([right[0]], [right[0], right[0]], [right[1], right[1]], [*right, right[1]]):
        with pytest.raises(JbrlError, match="expected the arrays that the agent learns here"):
            read_knowledge(tmp_path, other, wanted)
    named = {"name": "Random", "parameters": {}, "version": 99, "source": None}
    with pytest.raises(JbrlError, match=r"agent 'Random', version = 99: expected \d"):
        read_agent(tmp_path, named)


def test_the_digest_hangs_on_names_shapes_and_numbers(policy, monkeypatch):
    arrays = [
        {"a": np.zeros((2, 3))},
        {"b": np.zeros((2, 3))},
        {"a": np.zeros((3, 2))},
        {"a": np.zeros((2, 3), np.int64)},
        {"a": np.ones((2, 3))},
    ]
    found = set()
    for one in arrays:
        monkeypatch.setattr(Policy, "_arrays", lambda self, one=one: one)
        found.add(policy.digest)
    assert len(found) == len(arrays)


def test_states_travel_in_few_arrays_and_come_back():
    """Arrays of a dtype share vectors of at most 512 bytes; a larger one stands alone."""
    tree = {
        "keys": jax.random.split(jax.random.key(1), 3),
        "large": jnp.arange(200.0),
        "small": [jnp.full((5, n), n / 3, jnp.float32) for n in range(1, 12)],
        "flags": (jnp.array([True, False]), jnp.bool_(True), jnp.int32(-7)),
        "none": jnp.zeros((0, 4)),
    }
    layout = stepping._Layout.of(tree)
    packed = layout.packed(tree)
    assert len(packed) == 7 < len(jax.tree.leaves(tree))
    assert sum(v.nbytes > stepping.TOGETHER for v in packed) == 1
    back = layout.unpacked(packed)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for one, other in zip(jax.tree.leaves(tree), jax.tree.leaves(back), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape and (one == other).all()


@pytest.mark.parametrize("waiting", [False, True])
def test_a_life_saved_goes_on_with_the_same_bits(played, policy, tmp_path, waiting):
    life, moves = policy.start(seed=3, index=1), played.trajectories
    actions = follow(life, moves, 1, 0, 10)
    if waiting:  # saved between act and observe
        actions.append(life.act(moves["states"][1][10]))
    life = policy.resume(life.save(tmp_path / "life"))
    if waiting:
        life.observe(moves["rewards"][1][10], moves["states"][1][11])
    actions += follow(life, moves, 1, len(actions), HORIZON)
    assert actions == list(moves["actions"][1])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("reward", np.float32("nan"), "reward = .*: expected a finite number"),
        ("reached", np.int32(99), "next_observation = 99: expected an integer from 0 to 4"),
        ("ends", np.array("x"), ""),
        ("reward", None, "'outcome/reward'"),
    ],
)
def test_a_life_that_is_sealed_again_is_refused_in_a_sentence(policy, tmp_path, name, value, said):
    life = policy.start()
    life.act(0)
    life.observe(1.0, 1)
    header, found, _ = files.unpack(life.save(tmp_path / "life").read_bytes())
    found[f"outcome/{name}"] = value
    kept = {k: v for k, v in found.items() if v is not None}
    (tmp_path / "life").write_bytes(files.pack(header, kept))
    with pytest.raises(JbrlError, match=f"life: not as `save` writes it: {said}"):
        policy.resume(tmp_path / "life")


MISUSE = [
    (lambda life: life.observe(0.0, 1), "observe before act: expected act"),
    (lambda life: (life.act(0), life.act(0)), "act after act: expected observe"),
    (lambda life: life.act(5), "observation = 5: expected an integer from 0 to 4"),
    (lambda life: life.act(0.5), "observation = 0.5: expected an integer"),
    (lambda life: life.act([0]), "expected an integer"),
    (lambda life: life.act([[0], [1, 2]]), "expected an integer"),
    (lambda life: (life.act(0), life.observe(float("nan"), 1)), "reward = nan: expected a finite"),
    (lambda life: (life.act(0), life.observe(1e39, 1)), r"reward = 1e\+39: expected a finite"),
    (lambda life: (life.act(0), life.observe("1.5", 1)), "expected a number"),
    (lambda life: (life.act(0), life.observe(0, 1, "no")), "True or False twice"),
    (lambda life: (life.act(0), life.observe(0, 1, True, True)), "expected one of them"),
    (lambda life: life.act(np.int64(2**32)), "observation = 4294967296: expected an integer from"),
    (lambda life: life.act(np.uint64(2**63)), "observation = 9223372036854775808: expected an"),
    (lambda life: (life.act(0), life.observe(10**400, 1)), "expected a number"),
    (lambda life: (life.act(0), life.observe(np.str_("1"), 1)), "expected a number"),
    (lambda life: (life.act(0), life.observe(b"1", 1)), "expected a number"),
    (lambda life: (life.act(0), life.observe(0, 1, np.str_("no"))), "True or False twice"),
]


@pytest.mark.parametrize(("misuse", "said"), MISUSE)
def test_misuse_is_refused_in_a_sentence(policy, misuse, said):
    with pytest.raises(JbrlError, match=said):
        misuse(policy.start())


def test_processor_seconds_of_decisions_leave_waiting_out(policy, monkeypatch):
    started, waits = time.thread_time(), lambda *_: time.sleep(0.01)
    monkeypatch.setattr(stepping.Stepping, "_observation", lambda _, given, name: waits() or given)
    found = policy.latency(20)
    assert 0 < found.processor_p99 < time.thread_time() - started
    assert found.processor_p99 < found.median > 0.02
    assert "s of processor time), empty call" in found.in_words()
    worked = dataclasses.replace(found, processor_p99=found.p99)
    assert "processor" not in worked.in_words()


def test_a_mistake_of_the_environment_is_told_while_decisions_are_timed(monkeypatch):
    step = lambda *_: (0, (float("nan"), 0))  # noqa: E731
    monkeypatch.setattr(stepping, "_drawn", lambda *_: step)
    with pytest.raises(
        JbrlError, match=r"^environment of the prior, decision 1: reward = nan: exp"
    ):
        jbrl.policy("Random", "GC").latency(5)


def test_an_interrupted_decision_is_said(policy, tmp_path, monkeypatch):
    life = policy.start()
    life.act(0)
    life.observe(1.0, 1)

    def interrupted(*args, step=life._step):
        step(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(life, "_step", interrupted)
        life.act(1)
    for use in (lambda: life.act(1), lambda: life.save(tmp_path / "life")):
        with pytest.raises(JbrlError, match=r"^decision 2 was interrupted, and the state .* saved"):
            use()


def test_more_lifetimes_than_memory_are_refused(policy):
    with pytest.raises(
        JbrlError, match=r"^lifetimes = 2,000,000,000: their states take .* at most"
    ):
        policy.start(lifetimes=2 * 10**9)


@pytest.mark.parametrize("action", [3, -1])
def test_an_action_that_is_none_is_refused(policy, action, monkeypatch):
    for lifetimes, chosen in ((None, np.int32(action)), (2, np.int32([0, action]))):
        life = policy.start(lifetimes=lifetimes)
        monkeypatch.setattr(life, "_begin", lambda *_, chosen=chosen: (None, chosen))
        with pytest.raises(JbrlError, match=r"decision 1: chose an action outside 0\.\.2"):
            life.act(0 if lifetimes is None else [0, 0])


@pytest.mark.parametrize(
    ("misuse", "said"),
    [
        (lambda p, to: p.play("CartPole-v1"), "'CartPole-v1'.*: expected one of Gymnasium"),
        (lambda p, to: p.save(to, decisions=0), "^decisions = 0: expected an integer from 1"),
        (lambda p, to: p.latency(5, lifetimes=-1), "^lifetimes = -1: expected an integer from 1"),
        (lambda p, to: p.start().save(None), "path = None: expected a path"),
        (lambda p, to: p.start().save("a\0b"), r"path = 'a\\x00b': expected a path"),
        (
            lambda p, to: p.save(to.parent / ("n" * 300)),
            "nnn: cannot be written: File name too long",
        ),
        (lambda p, to: p.start(index=2**31 - 1, lifetimes=2), "^index = .* from 0 to 2147483646"),
        *(
            (lambda p, to, seen=seen: p.start(lifetimes=2).act(seen), "expected integers from 0")
            for seen in (np.array([0, 2**32]), np.array([0, 2**63], np.uint64))
        ),
        (
            lambda p, to: (
                (life := p.start(lifetimes=2)).act([0, 0]),
                life.observe([0, 1e39], [1, 1]),
            ),
            "reward = .*: expected a finite number",
        ),
        (lambda p, to: p.save(to, limits=["1 ms"]), "limits = .*: expected a dict such as"),
        (lambda p, to: p.save(to, limits={"x": np.nan}), "limits = .*nan.*: expected plain data"),
        *(
            (
                lambda p, to, ended=ended: (
                    (life := p.start(lifetimes=2)).act([0, 0]),
                    life.observe([0.0] * 2, [1] * 2, ended),
                ),
                r"terminated = \[.*\]: expected True, False or an array bool\[2\]",
            )
            for ended in ([True], ["no", "no"], [[True], [True, False]])
        ),
    ],
)
def test_arguments_of_another_kind_are_refused_in_a_sentence(policy, tmp_path, misuse, said):
    with pytest.raises(JbrlError, match=said):
        misuse(policy, tmp_path / "new")


@pytest.mark.parametrize(
    "name",
    [
        "absent:Corridor",
        "with_end(absent:Corridor)",
        'wrong(GC,kind="family",degree=0.5,towards="absent:Corridor")',
    ],
)
def test_a_folder_makes_no_module_be_imported(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "absent.py").write_text("raise SystemExit('imported')")
    with pytest.raises(JbrlError, match=r"problem .* own: expected `import absent` before"):
        read_problem(tmp_path, {"problem": {"name": name, "digest": "", "hosted": False}}, {})


def test_an_agent_of_the_users_own_is_asked_to_be_imported(tmp_path, monkeypatch):
    entry = register_agent("Kept away")(type("KeptAway", (AGENTS["Random"].agent,), {}))
    try:
        own = jbrl.policy(entry(), "GC").save(tmp_path / "own", decisions=5)
    finally:
        del AGENTS["Kept away"]
    with pytest.raises(JbrlError, match="'Kept away' is of the user's own: expected the module"):
        jbrl.load_policy(own)


@record
class Leaning(Agent):
    """Adds up what it has seen, and plays 1 where the sum is above 0."""

    def reset(self, key, knowledge):
        return jnp.float32(0)

    def act(self, key, state, observation):
        return jnp.where(state + observation[2] > 0, 1, 0).astype(jnp.int32), state

    def observe(self, key, state, transition):
        gained = transition.reward * transition.next_observation[0]
        return state + gained + transition.observation[1]


def test_vectors_are_seen_and_refused():
    policy = jbrl.policy(Leaning(), "CartPole")
    for lifetimes in (None, 2):
        life = policy.start(lifetimes=lifetimes)

        def seen(*values, lifetimes=lifetimes):
            return values if lifetimes is None else [values, (0, 0, 1, 0)]

        for bad, said in (
            ((0, 0, np.nan, 0), "observation = .*: expected finite numbers"),
            ((0, 0, 0), "expected an array float32"),
            (("a", "b", "c", "d"), "expected an array float32"),
        ):
            with pytest.raises(JbrlError, match=said):
                life.act(seen(*bad) if len(bad) == 4 else bad)
        reward = 2.0 if lifetimes is None else [2.0, 2.0]
        actions = [life.act(seen(0, 1, -0.5, 0))]
        for gain, lean in ((3, -6.5), (0, -8.5)):  # 2 x 3 + 1, then nothing more
            life.observe(reward, seen(gain, 0, 0, 0))
            actions.append(life.act(seen(0, 0, lean, 0)))
        assert np.ravel(actions)[:: lifetimes or 1].tolist() == [0, 1, 0]


def test_an_agent_that_sees_the_environment_is_refused(monkeypatch):
    monkeypatch.setattr(sys.modules["jbrl.policy"], "make_run", None)  # before anything is played
    with pytest.raises(JbrlError, match="Optimal is shown the true environment"):
        jbrl.policy("Optimal", "GC")


LOADED = """
import sys, json, jbrl
policy = jbrl.load_policy(sys.argv[1])
life, moves = policy.resume(sys.argv[2]), json.loads(sys.argv[3])
actions = []
for state, reward, reached in moves:
    actions.append(life.act(state))
    life.observe(reward, reached)
print(json.dumps(actions))

import time, jax, jax.numpy as jnp
long = jax.jit(lambda x: jax.lax.fori_loop(0, 3000, lambda i, y: jnp.tanh(y @ y), x))
long(x := jnp.ones((64, 64))).block_until_ready()
started = time.perf_counter()
result = long(x)
called = time.perf_counter() - started
result.block_until_ready()
print(called / (time.perf_counter() - started))
"""


@pytest.mark.slow
def test_another_process_goes_on_with_the_same_bits(folder, played, policy, tmp_path):
    moves = played.trajectories
    life = policy.start(seed=3, index=1)
    follow(life, moves, 1, 0, 10)
    states = moves["states"][1]
    rest = zip(states[10:-1], moves["rewards"][1][10:], states[11:], strict=True)
    text = json.dumps([[int(x), float(r), int(y)] for x, r, y in rest])
    said = output_of(sys.executable, "-c", LOADED, folder, life.save(tmp_path / "life"), text)
    decided, waited = said.splitlines()
    assert json.loads(decided) == list(moves["actions"][1][10:])
    assert float(waited) > 0.5  # a call takes the time of the computation: no other thread does it


def own_problem(name: str) -> str | None:
    """A distribution over finite MDPs that an agent plays without being shown the MDP."""
    agent = AGENTS[name].agent()
    for problem in ("GC", "Bandit(arms=3)"):
        told = jbrl.problem(problem)
        protocol = Protocol(told, told, 1, 0, jbrl.Steps(HORIZON), 0.95)
        if suits(agent, name, protocol) and not is_oracle(agent):
            return problem
    return None


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in sorted(AGENTS) if own_problem(name)])
def test_every_agent_plays_its_actions(name, tmp_path):
    settings = {"n_environments": 2, "seed": 1, "horizon": 60, "record": True}
    played = jbrl.play(name, prior=own_problem(name), **settings)
    loaded = jbrl.load_policy(played.policy().save(tmp_path / "policy", decisions=5))
    moves = played.trajectories
    assert follow(loaded.start(seed=1, index=1), moves, 1, 0, 60) == list(moves["actions"][1])
    life = loaded.start(seed=1, lifetimes=2)
    for t in range(60):
        np.testing.assert_array_equal(life.act(moves["states"][:, t]), moves["actions"][:, t])
        life.observe(moves["rewards"][:, t], moves["states"][:, t + 1])
