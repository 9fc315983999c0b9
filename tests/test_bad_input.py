"""Mistakes of users: one clear message, exit code 2, no traceback, nothing lost."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import jbrl
import jbrl.plot
from jbrl.agents.deep import replay
from jbrl.agents.opps import formulas
from jbrl.agents.prior_trained import trained as trained_agents
from jbrl.base import errors
from jbrl.bayes_optimal import plan
from jbrl.play import unit
from jbrl.play.resources import parse_memory
from jbrl.problems import bsuite, families
from jbrl.problems.problem import DirichletProblem, EnvironmentProblem
from jbrl.stats.evaluation import propagation, samples
from jbrl.stats.subset.fit import Folds
from jbrl.stats.table import check_level
from tests.faults.cases import contents
from tests.terminal import call, refused, succeeds

STUDY = """
[study]
name = "tiny"
n_environments = 6
horizon = 16

[[experiments]]
name = "GC"
prior = "GC"
test = "GC"

[[agents]]
algorithm = "Random"

[[agents]]
algorithm = "Q-learning"
epsilon = [0, 0.5]
"""
GREEDY = '"Q-learning"\nepsilon = [0, 0.5]'
GC = Path(jbrl.__file__).parent / "problems" / "data" / "GC.json"


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


# (text of the study that is replaced, by what, what the message names)
IN_THE_STUDY = [
    ('"Q-learning"', '"Q-lerning"', "[[agents]] 2 … 'Q-lerning' … did you mean 'Q-learning'?"),
    ('prior = "GC"', 'prior = "GD"', "[[experiments]] 1 … prior … 'GD' … did you mean 'G"),
    ("n_environments", "n_mpds", "[study] … 'n_mpds' … did you mean 'n_mdps'?"),
    ('"Random"', '"Formula"\nformula = "Q0+Q3"', "1 (Formula) … 'Q0+Q3': position 4 … 'Q3'"),
    ("horizon = 16", "horizon = = 16", "not valid TOML … line 5"),
]
# (the first agent, what the message names)
IN_AN_AGENT = [
    ('"BAMCP"\nsimulations = 0', "(BAMCP) … simulations = 0 … from 1"),
    ('"BAMCP"\nsimulations = 2.5', "(BAMCP) … simulations = 2.5 … an integer"),
    ('"BAMCP"\nsimulations = 16000000\ndepth = 500', "BAMCP in experiment 'GC' … at most 4 GiB"),
    ('"BFS3"\ndepth = 0', "(BFS3) … depth = 0 … from 1"),
    ('"BFS3"\nsamples = 0', "(BFS3) … samples = 0 … from 1"),
    ('"BFS3"\ntrajectories = 1000000\nsamples = 1', "BFS3 in experiment 'GC' … MiB for one tree"),
    ('"OPPS-DS"\nspace = ""', "(OPPS-DS) … empty space … F1, F2, F3"),
    ('"OPPS-DS"\nbudget = [50, 0]', "(OPPS-DS) … budget = 0 … expected an integer from 1"),
    ('"OPPS-DS"\nspace = "Q0; 1/(Q1-Q1)"', "(OPPS-DS) … '1/(Q1-Q1)' … undefined at every point"),
]
CASES = [*IN_THE_STUDY, *(('"Random"', *case) for case in IN_AN_AGENT)]


@pytest.mark.parametrize(("before", "after", "words"), CASES, ids=[case[-1] for case in CASES])
@pytest.mark.parametrize("mode", [[], ["--dry-run"]], ids=["run", "dry-run"])
def test_a_study_that_is_not_accepted(study, tmp_path, before, after, words, mode):
    study.write_text(STUDY.replace(before, after, 1))
    texts = words.split(" … ")
    if "in experiment" not in words:  # a study is read before its experiments are
        texts.append(str(study))
    refused(call("run", study, "--out", tmp_path / "out", *mode), *texts)
    assert not (tmp_path / "out").exists()


DIGITS = {digits: "1" + "0" * (digits - 1) for digits in (400, 5000)}
WHERE = {
    "n_environments": ("n_environments = 6", "n_environments = {}"),
    "horizon": ("horizon = 16", "horizon = {}"),
    "discount": ("horizon = 16", "discount = {}"),
    "horizon_epsilon": ("horizon = 16", 'horizon = "auto"\nhorizon_epsilon = {}'),
    "seed": ("horizon = 16", "seed = [{}, 1]"),
    "horizon and episodes": ("horizon = 16", "horizon = {}\nepisodes = {}"),
    "name": ('"tiny"', "{}"),
    "parameter of a problem": ('test = "GC"', 'test = "GC(n_states={})"'),
    "setting of an environment": ('test = "GC"', 'test = "DeepSea(size={})"'),
    "float parameter": ("epsilon = [0, 0.5]", "epsilon = {}"),
    "integer parameter": (GREEDY, '"BAMCP"\nsimulations = {}'),
    "distribution": ("epsilon = [0, 0.5]", "epsilon = {{ uniform = [0, {}] }}"),
    "formula": (GREEDY, '"Formula"\nformula = {}'),
    "name of a parameter": ("epsilon = [0, 0.5]", "{} = 1"),
}


@pytest.mark.parametrize("digits", DIGITS)
@pytest.mark.parametrize("case", WHERE)
def test_integers_of_many_digits(study, tmp_path, case, digits):
    before, after = WHERE[case]
    study.write_text(STUDY.replace(before, after.format(*[DIGITS[digits]] * 2), 1))
    result = call("run", study, "--out", tmp_path / "out", "--dry-run")
    refused(result, "study.toml")
    assert len(result.stderr) < 700


@pytest.mark.parametrize("digits", DIGITS)
def test_an_override_of_many_digits(study, tmp_path, digits):
    setting = ("--set", f"study.horizon={DIGITS[digits]}")
    result = call("run", study, "--out", tmp_path / "out", "--dry-run", *setting)
    refused(result, "[study]: horizon =", "expected an integer from 1 to 2147483647")


# (what is replaced, by what, d levels deep)
NESTED: dict[str, tuple[str, Callable[[int], str]]] = {
    "list": ("epsilon = [0, 0.5]", lambda d: "epsilon = " + "[" * d + "]" * d),
    "table": ("epsilon = [0, 0.5]", lambda d: "epsilon = " + "{uniform=" * d + "1" + "}" * d),
    "key": ("epsilon = [0, 0.5]", lambda d: "epsilon" + ".a" * d + " = 1"),
    "setting": ("horizon = 16", lambda d: "horizon = " + "[" * d + "]" * d),
    "header": ("[study]", lambda d: "[a" + ".a" * d + "]\n[study]"),
    "distribution": ('test = "GC"', lambda d: f'test = "{"uniform(" * d}GC{")" * d}"'),
    "distribution without an end": ('test = "GC"', lambda d: f'test = "{"uniform(" * d}"'),
    "formula": (GREEDY, lambda d: f'"Formula"\nformula = "{"uniform(" * d}"'),
    "absolute values": (GREEDY, lambda d: f'"Formula"\nformula = "{"abs(" * d}Q0{")" * d}"'),
    "minuses": (GREEDY, lambda d: f'"Formula"\nformula = "{"-" * d}Q0"'),
    "space": (GREEDY, lambda d: f'"OPPS-DS"\nspace = "Q0; {"1/(" * d}"'),
    "algorithm": ('"Q-learning"', lambda d: f'"{"uniform(" * d}"'),
    "module": ('"Q-learning"', lambda d: f'"{"u." * d}u:U"'),
}


@pytest.mark.parametrize("depth", [300, 3000])
@pytest.mark.parametrize("case", NESTED)
def test_what_is_nested_deeply(study, tmp_path, case, depth):
    before, after = NESTED[case]
    study.write_text(STUDY.replace(before, after(depth), 1))
    result = call("run", study, "--out", tmp_path / "out", "--dry-run")
    refused(result, "study.toml")
    assert len(result.stderr) < 800


def test_a_path_that_is_too_long(study, tmp_path):
    refused(call("run", study, "--out", tmp_path / ("o" * 300)), "o" * 300, "File name too long")
    refused(call("run", study, "--out", tmp_path / ("o" * 300), "--dry-run"), "File name too long")
    for command in ("scores", "status", "report", "rank", "evaluate"):
        refused(call(command, tmp_path / ("o" * 300)), "o" * 300, "ile name too long")


def test_a_problem_that_is_not_accepted(study, tmp_path):
    (tmp_path / "mine.json").write_text(GC.read_text().replace("1.0", "-1.0", 1))
    study.write_text(STUDY.replace('test = "GC"', 'test = "mine.json"'))
    result = call("run", study, "--out", tmp_path / "out")
    refused(result, "[[experiments]] 1 (GC): test", "mine.json", "transition_weights", "-1")
    refused(call("show", tmp_path / "mine.json"), "mine.json", "transition_weights", "-1")


def test_files_that_are_not_there(study, tmp_path):
    result = call("run", tmp_path / "none.toml", "--out", tmp_path / "out")
    refused(result, "none.toml", "No such file")
    study.write_text(STUDY.replace('test = "GC"', 'test = "none.json"'))
    refused(call("run", study, "--out", tmp_path / "out"), "none.json", "No such file")
    (tmp_path / "empty").mkdir()
    for command in ("scores", "returns", "report"):
        for folder in ("nowhere", "empty"):
            refused(call(command, tmp_path / folder), folder, "no results of a study")


@pytest.mark.parametrize("command", ["rank", "scores", "report"])
def test_a_file_is_no_directory_of_results(tmp_path, command):
    for name in ("table.csv", "table.txt"):
        (tmp_path / name).write_text("x")
        result = call(command, tmp_path / name)
        refused(result, f"{name} is a file: expected a directory of results")
        hint = f"; 'jbrl evaluate {tmp_path / name}' reads score tables"
        assert (hint in result.stderr) == (name == "table.csv")


def test_unknown_names_elsewhere():
    refused(call("show", "Nothing"), "unknown agent or problem 'Nothing' (known: ")
    refused(call("show", "BEBE"), "unknown agent or problem 'BEBE'; did you mean 'BEB'?", ".json")
    refused(call("cite", "BEBB"), "'BEBB'", "did you mean 'BEB'?")
    refused(call("cite", "MountainCat"), "did you mean 'MountainCar'?")


@pytest.mark.parametrize(
    "command", ["run", "run a.toml", "list agent", "scores x --format xml", "ruin", "run --frob"]
)
def test_commands_that_are_not_accepted(command):
    assert call(*command.split()).exit_code == 2


@pytest.fixture
def played(study, tmp_path):
    """Results of the study."""
    folder = tmp_path / "out"
    assert call("run", study, "--out", folder, "--quiet").exit_code == 0
    return folder


def test_the_directory_of_another_study_is_left_alone(study, played):
    before = contents(played)
    result = call("run", study, "--out", played, "--set", "study.horizon=11")
    refused(result, str(played), "another study", "horizon is 16 there and 11 in this one")
    assert contents(played) == before


def test_a_truncated_result_is_redone_with_a_warning(study, played):
    before = call("returns", played).stdout
    path = next(iter(sorted((played / "units").glob("*.npz"))))
    path.write_bytes(path.read_bytes()[:100])
    shown = call("scores", played, "--format", "csv")
    assert shown.exit_code == 0 and shown.stdout.count("missing") == 1
    assert shown.stderr.count("warning: ") == 1 and path.name in shown.stderr
    again = succeeds("run", study, "--out", played)
    assert again.stderr.count("warning: ") == 1 and f"{path.name} is damaged" in again.stderr
    assert call("returns", played).stdout == before


@pytest.fixture
def read_only():
    """A directory that this process cannot write to, and a study in it."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "study.toml").write_text(STUDY)
    out = folder / "out"
    out.mkdir(mode=0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may write anywhere
    yield out
    os.seteuid(user)
    shutil.rmtree(folder)


def test_a_read_only_directory(read_only):
    study = read_only.parent / "study.toml"
    result = call("run", study, "--out", read_only)
    refused(result, str(read_only), "Permission denied", "choose another --out")
    refused(call("run", study, "--out", read_only / "deeper"), "Permission denied")


def test_an_output_directory_that_is_a_file(study, tmp_path):
    (tmp_path / "out").write_text("mine")
    out = tmp_path / "out"
    refused(call("run", study, "--out", out), str(out), "choose another --out")
    assert (tmp_path / "out").read_text() == "mine"


NO_DISTRIBUTION = jbrl.DirichletMDPs(-1, 1, 1)  # type: ignore[arg-type]


GRID = jbrl.DirichletMDPs(np.ones((2, 2, 2)), np.ones((2, 2, 2)), 0)  # type: ignore[arg-type]


def simulated(**arguments: Any) -> Any:
    problem = jbrl.problem("GC")
    given = {"agent": jbrl.agents.Random(), "environment": problem, "key": problem.key(0)}
    return jbrl.simulate(**given | arguments)


TWICE = pd.DataFrame([["A", "x", 1, 1]], columns=["algorithm", "environment", "score", "score"])
COMPLEX = pd.DataFrame({"algorithm": ["A", "B"], "environment": "x", "score": 1j})
SCORES = pd.DataFrame(
    [(a, e, float(i * j)) for i, a in enumerate("ABCDEF") for j, e in enumerate("uvwxyz")],
    columns=["algorithm", "environment", "score"],
)
WIDE = pd.DataFrame(np.zeros((1, 50_000)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: DirichletProblem("x", "x", -1), "problem 'x': -1: expected DirichletMDPs"),
        (lambda: DirichletProblem("x", "x", NO_DISTRIBUTION), "concentrations has shape ()"),
        (lambda: EnvironmentProblem("x", "x", -1), "expected an environment"),
        (lambda: jbrl.play("Random", test=NO_DISTRIBUTION), "(concentrations=-1, rewards=1, "),
        (lambda: jbrl.problem(None), "problem = None: expected a problem, or the name of one, for"),
        (lambda: jbrl.simulate("Random", "GC", 0), "simulate('Random', 'GC'): expected an agent"),
        (lambda: jbrl.Steps(-1), "horizon = -1: expected an integer from 1"),
        (lambda: jbrl.evaluate([]), "score table: none given: expected at least one"),
        (lambda: jbrl.evaluate(TWICE), "2 columns are called 'score': expected one"),
        (lambda: jbrl.evaluate(COMPLEX), "score = 1j: expected a finite number (and 1 more)"),
        (lambda: jbrl.evaluate(WIDE), "(columns found: 0, 1, 2"),
        (lambda: jbrl.Episodes(float("nan")), "episodes = nan: expected an integer from 1"),
        (lambda: jbrl.load_results(["brackets"]), "['brackets']: expected the name of one, for"),
        (lambda: jbrl.load_pretrained("GC", compile_cache=3), "compile_cache = 3: expected a path"),
        (lambda: jbrl.load_policy(None), "folder = None: expected a path"),
        (lambda: jbrl.Results(3), "folder = 3: expected a path"),
        (lambda: jbrl.run(None, "out"), "study = None: expected a path"),
        (lambda: jbrl.compare(3), "results = 3: expected a path"),
        (lambda: jbrl.choose("GC", out=3), "out = 3: expected a path"),
        (lambda: jbrl.bound("GC", agents=3), "agents = 3: expected names of agents, or"),
        (lambda: jbrl.problem(GRID), "=array([[[1., 1.], [1., 1.]], [[1"),
        (lambda: jbrl.problem("GC").key("a"), "seed = 'a': expected an integer from 0"),
        (lambda: simulated(key="key"), "key = 'key': expected a key of JAX, as problem.key("),
        (lambda: simulated(index=1.5), "index = 1.5: expected an integer from 0"),
        (lambda: simulated(index=jnp.float32(1.7)), "index = 1.70000004768371"),
        (lambda: simulated(index=jnp.arange(3)), "index = Array([0, 1, 2], dtype=int32): expected"),
        (
            lambda: jax.vmap(lambda i: simulated(index=i))(jnp.ones(2)),
            "index = float32[]: expected",
        ),
        (lambda: simulated(lifetime=10), "lifetime = 10: expected for example jbrl.Steps(250)"),
        (lambda: simulated(agent=jbrl.agents.BEB(beta=-1.0)), "BEB: beta = -1.0: expected a n"),
        (lambda: simulated(discount=2), "discount = 2: expected a number from 0 up to"),
        (lambda: simulated(prior=3), "prior = 3: expected a problem or a prior"),
        (lambda: jbrl.evaluate(None), "scores = None: expected a file, a table of pandas, or"),
        (lambda: jbrl.evaluate("x.csv", 3), "options = 3: expected jbrl.EvaluateOptions"),
        (lambda: jbrl.metrics([3]), "scores = 3: expected a file, a table of pandas, or"),
        (
            lambda: jbrl.subset(SCORES, search=3),
            "search = 3: expected a Search of jbrl.stats.subset",
        ),
        (lambda: jbrl.subset(3), "scores = 3: expected a file, a table of pandas, or"),
        (lambda: jbrl.summarise(np.ones(3)), "returns = array([1., 1., 1.]): expected a table"),
        (lambda: jbrl.paired_z("a", "b"), "the first sample = 'a': expected one number per"),
        (lambda: jbrl.paired_z([[1, 2]], [[1, 2]]), "first sample = [[1, 2]]: expected one number"),
        (lambda: jbrl.paired_z([1], [2], level="a"), "level = 'a': expected a number between"),
        (lambda: jbrl.plot.scores("x"), "results = 'x': expected results of a study, as jbrl.Res"),
        (lambda: jbrl.plot.returns("x"), "played = 'x': expected what jbrl.play returns"),
        (lambda: jbrl.plot.returns(None, bins=0), "bins = 0: expected an integer from 1"),
        (lambda: jbrl.register_agent(jbrl.Agent), "Agent'>: expected a text, as in @register_agen"),
    ],
)
def test_a_wrong_argument_in_python_is_refused_in_one_sentence(given, message):
    with pytest.raises(jbrl.JbrlError) as error:
        given()
    assert message in str(error.value) and "\n" not in str(error.value)
    assert len(str(error.value)) < 2000


def looked_ahead(**counts: int) -> None:
    """Check the sizes of a model that has as many blocks, rows and numbers."""
    sizes = {"blocks": plan.MOST_BLOCKS, "n_uncertain": plan.MOST_ROWS, "n_free": plan.MOST_FREE}
    sizes |= counts
    model: Any = SimpleNamespace(**sizes | {"blocks": range(sizes["blocks"])})
    plan.check_model(model, "x")


def trained(bytes: int, budget: int = 1) -> None:
    jbrl.agents.BeliefPPO(budget=budget, batch=1)._check_round(bytes)


EFFORT = samples.Effort("pbp", 60.0, samples.GREATEST)
SIX_GB = int(samples.GREATEST) // samples.TABLE
TENTHS = " ".join(["0.1"] * 10)


@pytest.mark.parametrize(
    ("use", "accepted", "refused"),
    [
        (lambda v: families.grid(*v), [(1, 3), (3, 1), (2, 2)], [(1, 2), (0, 4), (4, 0)]),
        (
            lambda v: families.bandit(2, v),
            ["1 1", TENTHS, "1e-30 1e30", "1 2; 3 4"],
            ["1", f"{TENTHS} 1", "9e-31 1", "1 1.1e30", "1 1; 1 1; 1 1", "1 2; 1 2 3"],
        ),
        (lambda v: families.wrong(jbrl.problem("GC"), "scaled", v), [-999, 999], [-999.1, 999.1]),
        (lambda v: families.wrong(jbrl.problem("GC"), "support", v), [0, 1], [-0.1, 1.1]),
        (bsuite.deep_sea_stochastic, [2, 1000], [1, 1001]),
        (parse_memory, [str(2**20), "1B", 1], [str(2**20 - 1), "0B", 0]),
        (propagation.check_delta, [1e-9, 0.5], [0, 0.51, "a"]),
        (check_level, [1e-9, 1 - 1e-9], [0, 1]),
        (errors.check_discount, [0, 1 - 1e-9], [-1e-9, 1]),
        (lambda v: errors.check_count("n", v, 7, 3), [3, 7], [2, 8, True, 3.0]),
        (lambda v: samples.check_effort([EFFORT], 1, 1, v), [1.0], [0.99]),
        (lambda v: samples.check_table(1, v, "x"), [SIX_GB], [SIX_GB + 1]),
        (lambda v: Folds(v, groups=("a", "b", "c")), [2, 3], [1, 4]),
        (lambda v: unit._shard(v), ["1/3", "3/3"], ["0/3", "4/3", "1/0"]),
        (lambda v: plan._check_numbers(5, v, None, 1), [0, 5], [-1, 6, 1.0]),
        (lambda v: plan._check_numbers(5, None, v, 1), [1e-9], [0, np.inf]),
        (lambda v: plan._check_numbers(5, None, None, v), [1], [0]),
        (lambda v: looked_ahead(blocks=v), [plan.MOST_BLOCKS], [plan.MOST_BLOCKS + 1]),
        (lambda v: looked_ahead(n_uncertain=v), [plan.MOST_ROWS], [plan.MOST_ROWS + 1]),
        (lambda v: looked_ahead(n_free=v), [plan.MOST_FREE], [plan.MOST_FREE + 1]),
        (lambda v: replay.check_sizes(v, 5), [5], [6]),
        (lambda v: jbrl.agents.PPO(rollout_length=8, minibatches=v), [1, 4], [3, 8]),
        (lambda v: jbrl.agents.BeliefPPO(batch=v), [255, 256, 512], [257]),
        (trained, [trained_agents.MAX_BYTES], [trained_agents.MAX_BYTES + 1]),
        (lambda v: trained(0, v), [trained_agents.MOST_ROUNDS], [trained_agents.MOST_ROUNDS + 1]),
        (lambda v: jbrl.agents.OPPSCS(budget=v, draws=2), [10], [9]),
        (lambda v: jbrl.agents.NacTD(critic_alpha_low=v), [0.1], [0.2]),
        (lambda v: formulas.parse("Q0" + "+Q1" * v), [15], [16]),
    ],
)
def test_limits_are_accepted_themselves(use, accepted, refused):
    for value in accepted:
        use(value)
    for value in refused:
        with pytest.raises(jbrl.JbrlError):
            use(value)


@pytest.mark.parametrize(
    "command",
    [
        *("show .json", "run .toml --out out", "choose .json", "evaluate .csv"),
        *("bsuite score .csv", "subset search .csv --preset .toml"),
        "subset search .csv --plan .toml",
    ],
)
def test_a_file_that_is_a_pipe_or_endless_is_not_read(tmp_path, command):
    for name in ("pipe", "zero"):
        place = str(tmp_path / name)
        words = [place + word if word.startswith(".") else word for word in command.split()]
        for word in words:
            if word.startswith(place) and name == "pipe":
                os.mkfifo(word)
            elif word.startswith(place):
                Path(word).symlink_to("/dev/zero")
        refused(call(*words), "it is a pipe or a device: expected a file")


def test_memory_that_does_not_suffice_is_no_traceback(monkeypatch):
    def starved(*_: Any) -> None:
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr("jbrl.problems.lookup.problem", starved)
    refused(call("show", "GC"), "the memory of this machine does not suffice: Unable to allocate 7")
