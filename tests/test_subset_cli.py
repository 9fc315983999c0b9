"""`jbrl subset` and `jbrl sensitivity` from a terminal: what they print, what they write, and what
they refuse.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jbrl
from benchmarks.twins import subset as twin
from jbrl.base.errors import JbrlError
from jbrl.mdp.dirichlet import distribution
from jbrl.problems.json_format import write_json
from jbrl.problems.problem import DirichletProblem
from jbrl.stats.subset.study import read_plan
from tests import kept
from tests.stats.subset.tables import matrix, table_of
from tests.terminal import call, entries, refused, succeeds

KEYS = {"subset", "coefficients", "intercept", "n", "mse", "cv_mse", "loo_mse", "r2", "cv_r2"}
NAMES = ["long name", "grid(2,3)", "C", "D", "E"]
SEARCH = ("--size", 2, "--target", "mean", "--folds", 4, "--min-rows", 6, "--quiet", "--nested", 0)


@pytest.fixture(scope="module")
def scores():
    return matrix(20, m=16, n=5, holes=0.08)


@pytest.fixture
def table(tmp_path, scores):
    """A score table with further columns: a target and a family for each algorithm."""
    path = tmp_path / "scores.csv"
    rows = table_of(scores, NAMES)
    number = rows["algorithm"].str[1:].astype(int)
    rows.assign(truth=np.round(np.sin(number), 6), family=[f"f{i % 5}" for i in number]).to_csv(
        path, index=False
    )
    return path


def found(*arguments: object) -> dict:
    return entries("subset", "search", *arguments)


def test_json_has_what_was_searched_for(table, scores):
    printed = found(table, *SEARCH, "--limit", 10)
    whole = {"out": json.dumps(printed, indent=1)}
    kept.compare("jbrl subset search --format json", whole, table.parent)
    assert set(printed) >= {"best", "next", "counts", "settings"}
    assert set(printed["best"]) >= KEYS and all(set(fit) >= KEYS for fit in printed["next"])
    x, names = scores[:, np.argsort(NAMES)], sorted(NAMES)
    losses = twin.search(x, np.nanmean(x, 1), 2, "kfold", (4, 1982, 1, None, False), min_rows=6)
    best = min(losses, key=losses.__getitem__)
    assert printed["best"]["subset"] == [names[c] for c in best]
    assert printed["best"]["cv_mse"] == pytest.approx(losses[best], rel=1e-9)
    assert printed["best"]["intercept"] == 0
    assert printed["counts"]["total"] == 10 and len(printed["next"]) == 9
    assert printed["settings"]["seed"] == 1982 and printed["settings"]["criterion"] == "kfold"
    assert printed["best"]["n"] + len(printed["best"]["excluded"]) == 16


def test_the_table_says_the_same_and_a_model_predicts(table, tmp_path):
    model = tmp_path / "model.json"
    shown = succeeds("subset", "search", table, *SEARCH, "--save", model, "--ask", "C,D")
    kept.compare("jbrl subset search", {"out": shown.stdout, "model": model.read_text()}, tmp_path)
    best = found(table, *SEARCH)["best"]
    assert shown.stdout.startswith(", ".join(best["subset"]) + "\n")
    assert f"{best['cv_mse']:.6g}" in shown.stdout and ": C, D\n" in shown.stdout
    new = written(tmp_path / "new.csv", [("mine", name, 5.0) for name in best["subset"]])
    [row] = entries("subset", "predict", model, new)
    assert row["estimate"] == pytest.approx(5 * sum(best["coefficients"]), rel=1e-9)
    assert row["lower"] < row["estimate"] < row["upper"]


def test_targets_groups_and_names_with_commas(table):
    names = ("--force-in", "grid(2,3)", "--pool", "C")
    columns = ("--target", "truth", "--groups", "family")
    by_column = found(table, *SEARCH, *columns, *names)
    assert set(by_column["best"]["subset"]) == {"grid(2,3)", "C"}
    assert by_column["settings"]["target"] == "custom" and by_column["settings"]["grouped"] is True


def test_a_plan_builds_upon_its_steps(table, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        '[[steps]]\nname = "two"\nsize = 2\n[[steps]]\nname = "one"\nsize = 1\npool = ["two"]\n'
    )
    refused(call("subset", "search", table, "--plan", plan, "--ask", "C"), "--plan or --ask")
    steps = found(table, *SEARCH, "--plan", plan)["steps"]
    assert [step["name"] for step in steps] == ["two", "one"]
    assert set(steps[1]["best"]["subset"]) < set(steps[0]["best"]["subset"])
    assert steps[1]["counts"]["total"] == 2


def test_a_preset_is_a_file_of_options_that_others_override(table, tmp_path):
    preset = tmp_path / "mine.toml"
    preset.write_text('size = 2\ntarget = "mean"\nfolds = 4\nmin_rows = 6\npool = ["C", "D"]\n')
    assert set(found(table, "--preset", preset, "--nested", 0)["best"]["subset"]) == {"C", "D"}
    one = found(table, "--preset", preset, "--nested", 0, "--size", 1)
    assert len(one["best"]["subset"]) == 1 and one["settings"]["folds"] == 4
    for text, message in (
        ("fold = 3", "unknown option 'fold'; did you mean 'folds'?"),
        ('preset = "atari"', "preset = 'atari': expected 'atari5'"),
        ("size =", "not valid TOML"),
    ):
        preset.write_text(text)
        refused(call("subset", "search", table, "--preset", preset), f"{preset}: {message}")
    result = call("subset", "search", table, "--preset", "atari")
    refused(result, "--preset 'atari': expected atari5 or a TOML file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps = 3", "expected one table"),
        ("[[steps]]\nsize = 2", "1: name = None: expected a text"),
        ('[[steps]]\nname = "a"\nsise = 2', "unknown field 'sise'; did you mean 'size'"),
        ('[[steps]]\nname = "a"\nsize = true', "size = True: expected int"),
        ('[[steps]]\nname = "a"\npool = "b"', "pool = 'b': expected a list of names"),
        ("[[steps", "not valid TOML"),
    ],
)
def test_plans_that_are_not_accepted(tmp_path, text, message):
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(JbrlError, match=message):
        read_plan(tmp_path / "plan.toml")


def test_arrays_are_searched_as_tables_are(table, scores, tmp_path):
    arrays = {f"a{i:02}": row[None] for i, row in enumerate(scores)}
    np.savez(tmp_path / "scores.npz", environments=np.array(NAMES), **arrays)
    assert found(tmp_path / "scores.npz", *SEARCH) == found(table, *SEARCH)


# what the message names, and what is changed in the table
IN_THE_TABLE: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "row 4 … score = 'n/a?' … finite number": lambda t: t.replace(
        {"score": {t["score"][3]: "n/a?"}}
    ),
    "row 4 … 'inf'": lambda t: t.replace({"score": {t["score"][3]: "inf"}}),
    "scores.csv: algorithm 'a15' … 2 rows with different scores": lambda t: pd.concat(
        [t, t.head(1).assign(score=99)]
    ),
    "algorithm 'none' has no score at all": lambda t: pd.concat(
        [t, t.head(1).assign(algorithm="none", score="")]
    ),
    "the target is 1 for all algorithms": lambda t: t.assign(score=1),
    "subset: C: the greatest number is … e+201: expected 1e-150 to 1e+150 … min-max": lambda t: (
        t.assign(score=t["score"].astype(float) * 1e200)
    ),
    "e-199: expected 1e-150 to 1e+150": lambda t: t.assign(score=t["score"].astype(float) * 1e-200),
    "no column 'score'": lambda t: t.drop(columns="score"),
    "algorithms for 2 environments … at least 4": lambda t: t[t["algorithm"] < "a03"],
}


@pytest.mark.parametrize("words", IN_THE_TABLE)
def test_tables_that_are_not_accepted(table, words):
    changed = IN_THE_TABLE[words](pd.read_csv(table, dtype={"score": object}))
    changed.to_csv(table, index=False)
    refused(call("subset", "search", table, *SEARCH, "--folds", 2), *words.split(" … "))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--size 0", "size = 0 … from 1 to 5"),
        ("--size 6", "size = 6 … from 1 to 5"),
        ("--size -1", "size = -1: expected an integer from 0"),
        ("--min-rows -1", "min_rows = -1: expected an integer from 0"),
        ("--force-in C --force-out C", "'C' is both forced in and forced out"),
        ("--force-in C,D,E", "3 environments are forced in … at most size = 2"),
        ("--force-in Z", "unknown environment 'Z' … known: C, D"),
        ("--force-in C --min-algorithms 16", "'C' is forced in … fewer than 16 algorithms"),
        ("--min-algorithms 17", "no environment has scores of at least 17"),
        ("--min-environments 6", "0 algorithms are left (scores in at least 6 environments):"),
        ("--folds 17", "folds = 17 … at most 16"),
        ("--folds 1", "folds = 1 … from 2"),
        ("--groups family --folds 6", "folds = 6 … at most 5, the number of groups"),
        ("--min-rows 17", "none of 10 subsets can be fitted … fewer than 17 algorithms"),
        ("--limit 5", "10 subsets … at most 5"),
        ("--criterion loo --non-negative", "no closed form"),
        ("--columns environment", "--columns 'environment' … NAME=COLUMN"),
        ("--target truht", "no column 'truht' … truth"),
        ("--groups score", "column 'score' … expected one value"),
        ("--groups algorithm", "column 'algorithm' has the algorithms"),
        ("--force-out C,,D", "C,,D … none of them empty"),
        ("--heuristic --ask C,D", "asked about C, D … expected an exhaustive one"),
    ],
)
def test_options_that_are_not_accepted(table, arguments, words):
    refused(call("subset", "search", table, *SEARCH, *arguments.split()), *words.split(" … "))


def test_what_was_found_is_printed_where_no_model_can_be_written(table, tmp_path):
    done = call("subset", "search", table, *SEARCH, "--save", tmp_path / "no" / "where.json")
    assert done.exit_code == 2 and "where.json: cannot be written" in done.stderr
    assert done.stdout == call("subset", "search", table, *SEARCH).stdout


def written(path: Path, rows: list[tuple[str, str, float]]) -> Path:
    """Write scores as a file, and return its path."""
    columns = ["algorithm", "environment", "score"]
    pd.DataFrame(rows, columns=columns).to_csv(path, index=False)
    return path


@pytest.fixture
def model(table, tmp_path):
    """The model of the best subset."""
    path = tmp_path / "model.json"
    assert call("subset", "search", table, *SEARCH, "--save", path).exit_code == 0
    return path


def test_models_and_scores_that_are_not_accepted(table, model, tmp_path):
    whole = json.loads(model.read_text())
    one, other = whole["environments"]
    few = written(tmp_path / "few.csv", [("mine", one, 1.0)])
    refused(call("subset", "predict", model, few), "algorithm 'mine' has no score in", other)
    expected = "no subset model: expected a file that 'jbrl subset search --save' has written"
    refused(call("subset", "predict", table, few), f"scores.csv: {expected}")
    model.write_text(json.dumps({**whole, "coefficients": [1.0]}))
    message = "one number for each environment"
    refused(call("subset", "predict", model, few), "model.json", message)


@pytest.mark.slow
def test_noise_is_not_sold(tmp_path):
    """12 algorithms, 20 environments of noise, 15,504 subsets: the first figure
    predicts nothing.
    """
    scores = np.random.default_rng(0).normal(size=(12, 20))
    names = [f"e{j:02d}" for j in range(20)]
    table_of(scores, names).to_csv(tmp_path / "noise.csv", index=False)
    shown = succeeds("subset", "search", tmp_path / "noise.csv", "--target", "mean")
    text = shown.stdout
    headline = text.index("R² on algorithms left out of the choice: -")
    assert headline < text.index("cross-validated R²")
    assert "12 algorithms are too few to choose among 15,504 subsets of 5" in shown.stderr
    fitted = float(re.search(r"\n  cross-validated R²: (\S+)", text)[1])
    assert fitted > 0.8  # of the subset that was chosen for it


def test_several_scores_of_a_cell_can_be_averaged(model, tmp_path):
    best = json.loads(model.read_text())
    rows = [("mine", name, score) for name in best["environments"] for score in (4.0, 6.0)]
    rows += [("her", name, 5.0) for name in best["environments"]]
    new = written(tmp_path / "new.csv", rows)
    refused(call("subset", "predict", model, new), "several rows", "--duplicates mean")
    found = entries("subset", "predict", model, new, "--duplicates", "mean")
    assert [row["algorithm"] for row in found] == ["mine", "her"], "the order of the file"
    estimates = [row["estimate"] for row in found]
    assert estimates == pytest.approx([5 * sum(best["coefficients"])] * 2)
    assert {"transformed", "leverage", "warnings"} < found[0].keys()
    text = call("subset", "predict", model, new, "--duplicates", "mean").stdout
    assert "estimate" in text and "leverage" not in text


AGENT = '''
import jax.numpy as jnp
import jbrl
from jbrl.agents.registry import register_agent


@register_agent("Constant in a test")
class Constant(jbrl.Agent):
    """Take one action."""

    action: int = jbrl.parameter(0, "taken always", low=0, high=3)
    idle: float = jbrl.parameter(0.5, "of no effect", low=0, high=1)

    def reset(self, key, knowledge):
        return jnp.int32(0)

    def act(self, key, state, observation):
        return jnp.int32(self.action), state

    def observe(self, key, state, transition):
        return state
'''


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("draws")
    (tmp_path / "constant_agent.py").write_text(AGENT)
    # one state; the reward is the number of the action, or of its opposite
    rewards = np.zeros((1, 4, 1), np.float32) + np.arange(4, dtype=np.float32)[None, :, None]
    concentrations = np.ones((1, 4, 1), np.float32)
    for name, paid in {"one": rewards, "two": 3 - rewards}.items():
        mdps = distribution(concentrations, paid)
        write_json(DirichletProblem(name, name, mdps), tmp_path / f"{name}.json")
    tables = {
        "study": {"name": "draws", "n_environments": 40, "horizon": 1, "discount": 0.5, "seed": 3},
        "experiments": [{"name": "one", "test": "one.json"}],
        "agents": [
            {
                "algorithm": "constant_agent:Constant",
                "action": {"uniform": [0, 3]},
                "idle": {"uniform": [0, 1]},
            },
            {"algorithm": "Random"},
        ],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.syspath_prepend(tmp_path)
        jbrl.run(tables, tmp_path / "out", progress=False)
        yield jbrl.Results("out")


def test_draws_are_those_that_were_played(study):
    trials = study.trials
    assert len(trials) == 40 and set(trials["algorithm"]) == {"Constant in a test"}
    np.testing.assert_array_equal(trials["score"], trials["action"])
    assert trials["idle"].nunique() == 40 and set(trials["action"]) == {0, 1, 2, 3}


def test_the_command_and_its_page(study):
    options = ("--format", "json", "--permutations", 99, "--out", "page")
    run = succeeds("sensitivity", "out", *options)
    rows = json.loads(run.stdout[: run.stdout.rindex("]") + 1])
    assert [row["parameter"] for row in rows] == ["action", "idle"]
    assert rows[0]["share"] == 1 and rows[0]["significant"] and not rows[1]["significant"]
    page = Path("page/index.html").read_text()
    kept.compare_page("sensitivity", page)
    kept.compare("jbrl sensitivity", {p.name: p.read_text() for p in Path("page").glob("*.csv")})
    assert "Which parameters matter?" in page and "idle" in page
    # tables, page, a figure and its numbers
    suffixes = sorted(path.suffix for path in Path("page").iterdir())
    assert suffixes == [".csv"] * 3 + [".html", ".png", ".svg"]
    message = "--algorithm: 'Random' draws no parameters here"
    refused(call("sensitivity", "out", "--algorithm", "Random"), message)
    message = "--experiment: unknown experiment 'two'"
    refused(call("sensitivity", "out", "--experiment", "two"), message)


def test_listed_values_in_two_experiments(study):
    """Actions 0 and 3 are the best of one experiment and the worst of the other."""
    tables = {
        "study": {"name": "lists", "n_environments": 3, "horizon": 1, "discount": 0.5, "seed": 3},
        "experiments": [{"name": name, "test": f"{name}.json"} for name in ("one", "two")],
        "agents": [{"algorithm": "constant_agent:Constant", "action": [0, 1, 3]}],
    }
    jbrl.run(tables, "lists", progress=False)
    run = call("sensitivity", "lists", "--table", "tuning", "--format", "json", "--out", "gains")
    (row,) = json.loads(run.stdout[: run.stdout.rindex("]") + 1])
    # 0, 1, 3 have percentiles 0.1 and 2.8; 3, 2, 0 have 0.2 and 2.9
    assert row["tuned"] == pytest.approx((2.9 + 2.8) / 2 / 2.7)
    assert row["single"] == pytest.approx((0.9 + 1.8) / 2 / 2.7)
    assert (row["dimension"], row["choose"], row["sensitivity_lower"]) == (
        *(1, "action"),
        pytest.approx(row["sensitivity"]),
    )
    page = Path("gains/index.html").read_text()
    kept.compare_page("tuning", page)
    assert "What does tuning gain?" in page and "1.06 (1.06 to 1.06)" in page
    text = call("sensitivity", "lists", "--table", "tuning").stdout
    assert "1.06 [1.06, 1.06]" in text and "sensitivity_lower" not in text
    message = "tuning: 1 experiments, and 1 algorithms with several settings: expected at least two"
    refused(call("sensitivity", "lists", "--table", "tuning", "--experiment", "one"), message)
    message = "--algorithm: 'Random' has one setting here"
    refused(call("sensitivity", "lists", "--table", "tuning", "--algorithm", "Random"), message)
