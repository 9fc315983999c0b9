"""A study file is checked, with messages that help, and expanded into units."""

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import jbrl
from jbrl.agents import registry
from jbrl.base.errors import JbrlError
from jbrl.mdp.mdp import decisions_until
from jbrl.play.unit import select
from jbrl.study.file import Study, load_study


def tables(**study: Any) -> dict[str, Any]:
    return {
        "study": {"name": "tiny", "n_environments": 20, "horizon": 10, **study},
        "experiments": [
            {"name": "GC", "prior": "GC", "test": "GC"},
            {"name": "GC-inaccurate", "prior": "UGC", "test": "GC"},
        ],
        "agents": [{"algorithm": "Random"}, {"algorithm": "e-Greedy", "epsilon": [0, 0.5]}],
    }


def test_expands_into_the_product_in_the_order_of_the_file():
    labels = [unit.label for unit in load_study(tables(seed=[3, 4])).units]
    agents = ["Random", "e-Greedy(epsilon=0.0)", "e-Greedy(epsilon=0.5)"]
    assert labels == [
        f"{e}/{a} seed {s}" for e in ("GC", "GC-inaccurate") for a in agents for s in (3, 4)
    ]


def test_lists_are_axes_of_a_grid_and_agents_keep_to_their_experiments():
    data = tables()
    data["agents"] = [
        {
            "algorithm": "BEB",
            "beta": [1.0, 2.0],
            "bonus": ["pair", "transition"],
            "experiments": ["GC-inaccurate"],
        }
    ]
    found = [
        (u.experiment, u.parameters["beta"], u.parameters["bonus"]) for u in load_study(data).units
    ]
    assert found == [
        ("GC-inaccurate", beta, bonus) for beta in (1.0, 2.0) for bonus in ("pair", "transition")
    ]


def test_units_given_twice_are_one():
    data = tables()
    data["agents"].append({"algorithm": "e-Greedy", "epsilon": [0.5, 0.25]})
    data["agents"].append({"algorithm": "jbrl.agents:EpsilonGreedy", "epsilon": 0.25})
    assert [
        u.parameters.get("epsilon") for u in load_study(data).units if u.experiment == "GC"
    ] == [None, 0.0, 0.5, 0.25]


def test_automatic_horizon_is_the_published_one():
    """Castronovo et al. 2016: precision 0.01, discount 0.95, largest reward 10. Quotients of
    float64 logarithms lie above the integer for powers of 29 and others.
    """
    unit = load_study(tables(horizon="auto", horizon_epsilon=0.01)).units[0]
    assert unit.protocol.horizon == 194
    assert [decisions_until(0.5**k, 0.5) for k in range(1, 60)] == [*range(1, 60)]


@pytest.mark.parametrize(
    ("low", "high"), [(-1000.0, 1.0), (-1000.0, 0.0), (-1.0, 1000.0), (-2.0, -1000.0), (0.0, 0.5)]
)
def test_automatic_horizon_counts_costs_as_well(tmp_path, low, high):
    problem = {"name": "Costs", "n_states": 2, "n_actions": 1, "initial_state": 0}
    problem |= {"transition_weights": [[[1, 1]]] * 2, "rewards": [[[low, high]], [[high, low]]]}
    (tmp_path / "costs.json").write_text(json.dumps(problem))
    data = tables(horizon="auto", horizon_epsilon=0.01)
    data["experiments"] = [{"name": "costs", "test": "costs.json"}]
    horizon = Study(data, folder=tmp_path).units[0].protocol.horizon
    greatest = max(abs(low), abs(high))  # for ever
    tails = [0.95**steps * greatest / (1 - 0.95) for steps in (horizon, horizon - 1)]
    assert tails[0] <= 0.01 < tails[1]


@pytest.mark.parametrize("precision", [1e-300, 1e-320, 5e-324])
def test_automatic_horizon_of_a_tiny_precision(precision):
    horizon = (
        load_study(tables(horizon="auto", horizon_epsilon=precision)).units[0].protocol.horizon
    )
    log_tails = [
        steps * math.log(0.95) + math.log(10 / (1 - 0.95)) for steps in (horizon, horizon - 1)
    ]
    assert log_tails[0] <= math.log(precision) < log_tails[1]


DECISIVE = {"n_environments": 21, "horizon": 11, "discount": 0.9, "seed": 1}
IRRELEVANT = {"latency": True, "record": True, "chunk": 7, "name": "other", "compile": "quick"}


@pytest.mark.parametrize(
    ("change", "same"),
    [({name: value}, False) for name, value in DECISIVE.items()]
    + [({name: value}, True) for name, value in IRRELEVANT.items()],
)
def test_identity_hangs_on_all_that_returns_depend_on_and_nothing_else(change, same):
    before, after = ([u.id for u in load_study(tables(**c)).units] for c in ({}, change))
    assert before == after if same else not set(before) & set(after)


def test_identity_hangs_on_the_version_of_the_agent(monkeypatch):
    before = load_study(tables()).units
    for kind in {type(unit.agent) for unit in before}:
        monkeypatch.setattr(kind, "version", kind.version + 1)
    assert not {u.id for u in before} & {u.id for u in load_study(tables()).units}


def test_what_is_found_on_a_prior_is_known_by_prior_and_seed():
    """Whatever it is tested on, and in how many environments."""
    search = {"algorithm": "OPPS-DS", "space": "Q0; -Q0", "budget": 50}
    both = tables(seed=[3, 4]) | {"agents": [search]}
    both["experiments"].append({"name": "GC-other", "prior": "GC", "test": "UGC"})
    found = {(unit.prior, unit.protocol.seed): unit.knowledge_id for unit in load_study(both).units}
    assert len(set(found.values())) == len(found) == 4
    both["study"]["n_environments"] = 7
    for unit in load_study(both).units:
        assert unit.knowledge_id == found[unit.prior, unit.protocol.seed]


def test_identity_is_told_by_content_not_by_file_name(tmp_path):
    source = Path(jbrl.__file__).parent / "problems" / "data" / "GC.json"
    content = json.loads(source.read_text())
    (tmp_path / "same.json").write_text(json.dumps(content))
    content["transition_weights"][0][0][0] = 2.0
    (tmp_path / "other.json").write_text(json.dumps(content))
    ids = []
    for test in ("GC", "same.json", "other.json"):
        data = tables()
        data["experiments"] = [{"name": "GC", "prior": "GC", "test": test}]
        ids.append(Study(data, folder=tmp_path).units[0].id)
    assert ids[0] == ids[1] != ids[2]


def test_what_is_recorded_beside_results_is_the_file_with_what_it_leaves_to_defaults():
    """Other settings in a folder are those of another study: none that has no effect is kept."""
    flags = {"latency": False, "record": False}
    data = tables()
    del data["study"]["horizon"]
    facts = load_study(data).facts()
    assert (facts["experiments"], facts["agents"]) == (data["experiments"], data["agents"])
    settings = {"name": "tiny", "seed": 0, "n_mdps": 20, "discount": 0.95, "horizon": 250, **flags}
    assert facts["study"] == settings
    facts = load_study(tables(seed=[1, 2], horizon="auto")).facts()
    settings |= {"seed": [1, 2], "horizon": "auto", "horizon_epsilon": 0.01}
    assert facts["study"] == settings
    episodes = [{"name": "Chain-10s", "test": "Chain-10s"}]
    data = {"study": {"name": "e"}, "experiments": episodes, "agents": [{"algorithm": "Random"}]}
    assert load_study(data).facts()["study"] == {"name": "e", "seed": 0, "n_mdps": 500, **flags}


def test_overrides_are_typed_as_in_toml():
    study = load_study(
        tables(),
        ["study.n_environments=7", "study.latency=true", "study.name=plain", "study.seed=[1, 2]"],
    )
    expected = {"n_environments": 7, "latency": True, "name": "plain", "seed": [1, 2]}
    assert {name: vars(study.settings)[name] for name in expected} == expected


LIFETIME = 'horizon = {!r}: expected an integer from 1 to 2147483647, or "auto"'
WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"n_environments": 0}, "[study]: n_environments = 0: expected an integer from 1"),
    ({"n_environments": "20"}, "n_environments = '20': expected an integer from 1"),
    ({"n_environments": True}, "n_environments = True: expected an integer"),
    ({"n_environments": 2**31}, f"[study]: n_environments = {2**31}: expected an integer from 1"),
    ({"compile": "fast"}, 'compile = \'fast\': expected "full" or "quick"'),
    ({"discount": 1}, "discount = 1: expected a number from 0 up to, but not including, 1"),
    ({"discount": -0.1}, "discount = -0.1: expected"),
    ({"discount": False}, "[study]: discount = False: expected a number"),
    ({"discount": "0.9"}, "[study]: discount = '0.9': expected a number"),
    *(({"name": name}, f"[study]: name = {name!r}: expected a name") for name in ("", "a\nb", 5)),
    ({"discount": float("nan")}, "discount = nan: expected"),
    ({"seed": -1}, "seed = -1: expected an integer from 0"),
    ({"seed": 2**32}, f"[study]: seed = {2**32}: expected an integer from 0 to {2**32 - 1}, or a"),
    ({"seed": [1, 0.5]}, "seed = [1, 0.5]: expected an integer from 0"),
    ({"horizon": "automatic"}, LIFETIME.format("automatic")),
    ({"horizon_epsilon": 0}, "horizon_epsilon = 0: expected a number above 0"),
    ({"horizon_epsilon": float("inf")}, "[study]: horizon_epsilon = inf: expected a number"),
    ({"chunk": 0}, "[study]: chunk = 0: expected an integer from 1"),
    ({"latency": 1}, "[study]: latency = 1: expected true or false"),
    ({"n_mpds": 3}, "[study]: unknown field 'n_mpds'; did you mean 'n_mdps'?"),
    ({"n_mdps": 3}, "both n_mdps = 3 and n_environments = 20: expected one of them"),
    ({"name": None}, "[study]: 'name' is missing: expected a name for the study"),
]
WRONG_TABLES: list[tuple[dict[str, Any], str]] = [
    ({"agent": []}, "unknown table 'agent'; did you mean 'agents'?"),
    ({"study": None}, "expected a table [study]"),
    ({"experiments": []}, "expected at least one table [[experiments]]"),
    ({"agents": None}, "expected at least one table [[agents]]"),
    ({"agents": None, "agnets": [{}]}, "unknown table 'agnets'; did you mean 'agents'?"),
    ({"agents": {"algorithm": "Random"}}, "expected at least one table [[agents]]"),
]
WRONG_EXPERIMENTS: list[tuple[int, dict[str, Any], str]] = [
    (1, {"test": None}, "[[experiments]] 2: 'test' is missing: expected a problem"),
    (1, {"name": "GC"}, "[[experiments]] 2: name = 'GC': expected another name"),
    (1, {"name": "(all)"}, "[[experiments]] 2: name = '(all)': expected another name"),
    (0, {"problem": "GC"}, "[[experiments]] 1: both problem = "),
    (0, {"horizon": 3, "episodes": 4}, "both horizon = 3 and episodes = 4: expected one of them"),
    (0, {"episodes": 0}, "episodes = 0: expected an integer from 1"),
    (0, {"episodes": 2}, "the MDPs of 'GC' never end"),
    (0, {"prior": "GD"}, "[[experiments]] 1 (GC): prior: "),
    (0, {"prior": "Gird"}, "did you mean 'Grid'?"),
    (0, {"prior": "GDL"}, "[[experiments]] 1 (GC): prior "),
]
GREEDY = "[[agents]] 2 (e-Greedy): "
WRONG_AGENTS: list[tuple[int, dict[str, Any], str]] = [
    (1, {"algorithm": "e-Gredy"}, "[[agents]] 2: unknown algorithm 'e-Gredy'; did you mean 'e-Gr"),
    (1, {"epsilo": 0.1}, GREEDY + "unknown parameter 'epsilo'; did you mean 'epsilon'?"),
    (1, {"epsilon": [0, 1.5]}, GREEDY + "epsilon = 1.5: expected a number from 0 up to 1"),
    (1, {"epsilon": "a"}, "epsilon = 'a': expected a number"),
    (1, {"epsilon": []}, GREEDY + "epsilon = []: expected at least one value"),
    (
        0,
        {"experiments": ["GC-inacurate"]},
        "[[agents]] 1 (Random): unknown experiment 'GC-inacurate'; did you mean 'GC-inaccurate'?",
    ),
]
WRONG = [("study", None, *case) for case in WRONG_SETTINGS]
WRONG += [("", None, *case) for case in WRONG_TABLES]
WRONG += [("experiments", *case) for case in WRONG_EXPERIMENTS]
WRONG += [("agents", *case) for case in WRONG_AGENTS]


@pytest.mark.parametrize(("table", "number", "changes", "message"), WRONG)
def test_what_is_not_accepted_is_named(table, number, changes, message):
    """What is None in `changes` is left out."""
    data = tables()
    changed = data[table] if table else data
    changed = changed if number is None else changed[number]
    changed.update(changes)
    for name in [name for name, value in changes.items() if value is None]:
        del changed[name]
    with pytest.raises(JbrlError, match=re.escape(message)) as caught:
        Study(data, place="my.toml")
    assert str(caught.value).startswith("my.toml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n_environments=3", "--set 'n_environments=3': expected study.FIELD=VALUE"),
        ("agents.epsilon=3", "expected study.FIELD=VALUE"),
        ("study.n_environments", "expected study.FIELD=VALUE"),
        ("study.n_mpds=3", "unknown field 'n_mpds' of [study]; did you mean 'n_mdps'?"),
        ("study.n_environments=many", "n_environments = 'many': expected an integer from 1"),
    ],
)
def test_bad_overrides(text, message):
    with pytest.raises(JbrlError, match=re.escape(message)):
        load_study(tables(), [text])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[study]\nname = "a"\nn_mdps == 3\n', "not valid TOML: .*line 3"),
        (b'[study]\nname = "a"\nseed = [1,\n', "not valid TOML: .*line 3"),
        (
            b'\xef\xbb\xbf[study]\nnmae = "a"\n',
            r"\[study\]: .name. is missing",
        ),  # a byte order mark
        (b"\xff\xfe\x00", "cannot be read as a study: not a text file in UTF-8"),
        (None, "cannot be read as a study: No such file"),
    ],
)
def test_files_that_are_no_study(tmp_path, content, message):
    path = tmp_path / "study.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(JbrlError, match=rf"study\.toml: {message}"):
        load_study(path)


def test_only_and_shard_choose_units():
    units = load_study(tables()).units
    assert [u.label for u in select(units, only=r"^GC/.*epsilon=0\.5")] == [
        "GC/e-Greedy(epsilon=0.5) seed 0"
    ]
    shards = [select(units, shard=f"{i}/4") for i in (1, 2, 3, 4)]
    assert sorted(u.id for s in shards for u in s) == sorted(u.id for u in units)
    assert [len(s) for s in shards] == [2, 2, 1, 1]


@pytest.mark.parametrize(
    ("only", "shard", "message"),
    [
        ("BAMCP", None, "^--only 'BAMCP' matches none of the 6 units"),
        ("e-(", None, "^--only .*: not a regular expression"),
        (None, "0/3", "^--shard '0/3': expected I/N"),
        (None, "4/3", "expected I/N"),
        (None, "1-3", "expected I/N"),
    ],
)
def test_bad_choices(only, shard, message):
    with pytest.raises(JbrlError, match=message):
        select(load_study(tables()).units, only, shard)


AGENT = """
import dataclasses

import jbrl

@jbrl.register_agent("Lazy {name}")
class Lazy(jbrl.Agent):
    '''Always the first action.'''

    patience: float = jbrl.parameter(1.0, "how long it waits", low=0.0)


class Undecorated(Lazy):
    pass


@dataclasses.dataclass(frozen=True)
class Plain(jbrl.Agent):
    patience: float = 1.0


@dataclasses.dataclass(frozen=True)
class Bare(jbrl.Agent):
    patience: float


class Unrelated:
    pass
"""


@pytest.fixture(autouse=True)
def restore_register(monkeypatch):
    """Agents that are registered here are not met by other tests."""
    monkeypatch.setattr(registry, "AGENTS", dict(registry.AGENTS))


def custom(algorithm: str, folder: Path, **parameters: Any) -> Study:
    data = tables()
    data["experiments"] = data["experiments"][:1]
    data["agents"] = [{"algorithm": algorithm, **parameters}]
    return Study(data, folder=folder)


def test_an_agent_of_ones_own_lies_beside_the_study(tmp_path):
    """It has a source where it is named as registered, too."""
    (tmp_path / "lazy_agent.py").write_text(AGENT.format(name=1))
    unit = custom("lazy_agent:Lazy", tmp_path, patience=2).units[0]
    assert (unit.algorithm, unit.parameters) == ("Lazy 1", {"patience": 2.0})
    assert type(unit.agent).__name__ == "Lazy"
    # its identity is what the study says, as ever
    assert unit.configuration["algorithm"] == "lazy_agent:Lazy"
    assert "Lazy 1" in unit.label and unit.row()["algorithm"] == "Lazy 1"
    by_name = custom("Lazy 1", tmp_path).units[0]
    assert by_name.source == unit.source and unit.source
    assert by_name.row()["algorithm"] == "Lazy 1"
    assert custom("Random", tmp_path).units[0].source is None


def test_results_of_an_agent_of_ones_own_are_told_apart_by_its_source(tmp_path):
    """And by that of what it imports."""
    sources = []
    for version, value in ((1, 1), (2, 2), (3, 1)):
        text = f"import helper_{value} as helper\n" + AGENT.format(name=f"importing {version}")
        (tmp_path / f"helper_{value}.py").write_text(f"VALUE = {value}\n")
        (tmp_path / f"importing_{version}.py").write_text(text)
        unit = custom(f"importing_{version}:Lazy", tmp_path).units[0]
        # not of its file alone
        assert unit.configuration["agent_source"] != hashlib.sha256(text.encode()).hexdigest()
        sources.append(unit.configuration["agent_source"])
    assert all(sources) and len(set(sources)) == 3


@pytest.fixture(scope="module")
def bad_agents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents")
    (folder / "broken_agent.py").write_text("x = 1\nx / 0\n")
    (folder / "bad_agent.py").write_text(AGENT.format(name="bad"))
    return folder


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("no_such_module_xyz:Lazy", "cannot import 'no_such_module_xyz'.*No module named"),
        (
            "broken_agent:Lazy",
            r"cannot import 'broken_agent'.*ZeroDivisionError.*broken_agent.py, line 2",
        ),
        ("bad_agent:Lasy", "module 'bad_agent' has no agent called 'Lasy'; did you mean 'Lazy'"),
        ("bad_agent:Unrelated", "has no agent called 'Unrelated'"),
        ("bad_agent:Undecorated", r"not registered: write @register_agent\(\"Undecorated\"\)"),
        ("bad_agent:Plain", r"is a plain dataclass: write @register_agent\(\"Plain\"\)"),
        ("bad_agent:Bare", "field 'patience' has no default"),
    ],
)
def test_agents_of_ones_own_that_cannot_be_used(bad_agents, algorithm, message):
    with pytest.raises(JbrlError, match=message):
        custom(algorithm, bad_agents)


def test_lists_of_values_are_experiments():
    data = {
        "study": {"name": "lists", "n_environments": 2, "horizon": 3},
        "experiments": [
            {"name": "GC", "test": "GC(n_states=[3, 5])"},
            {"name": "wrong", "test": "GC", "prior": "wrong(GC,degree=[0,0.5])"},
        ],
        "agents": [
            {"algorithm": "Random"},
            {"algorithm": "BEB", "beta": [1.0, 2.0], "experiments": ["wrong"]},
        ],
    }
    study = Study(data)
    names = ["GC/3", "GC/5", "wrong/0", "wrong/0.5"]
    assert [table["name"] for table in study.facts()["experiments"]] == names
    assert [unit.experiment for unit in study.units] == [
        *names[:2],
        *names[2:3] * 3,
        *names[3:] * 3,
    ]
    data["experiments"].append({"name": "GC/5", "test": "GDL"})
    with pytest.raises(JbrlError, match=r"3: name = 'GC/5': expected another name, this one is ta"):
        Study(data)
