"""`jbrl evaluate` from the outside: what it prints and writes, and what it refuses."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import Result

import jbrl
from jbrl.base.errors import JbrlWarning
from jbrl.report import content as doc
from jbrl.report.axes import labels_of, styles
from jbrl.report.evaluation import _improvement, curves, weights
from jbrl.results import Results
from jbrl.stats.evaluation.metrics import metrics, performance_profiles, probability_of_improvement
from jbrl.stats.evaluation.ranking import AGGREGATE, Separation
from jbrl.stats.evaluation.ranking import evaluate as evaluate_samples
from jbrl.stats.evaluation.samples import payoffs, samples_of
from jbrl.study.file import load_study
from tests import kept, terminal
from tests.report.test_html import Page, ids_of
from tests.stats.evaluation_cases import expected, mini
from tests.study.storage.test_store import HEADER, opened


def call(*arguments: object) -> Result:
    return terminal.call("evaluate", *arguments)


def tables_of(*arguments: object) -> dict:
    """Return all that is printed as JSON, without notes."""
    return terminal.entries("evaluate", *arguments, "--quiet")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("evaluate") / "mini.csv"
    mini().to_csv(path, index=False)
    return path


def test_json_has_everything_at_full_precision(table):
    tables = tables_of(table, "--method", "pbp")
    assert list(tables) == ["aggregate", "environments", "weights", "settings"]
    assert tuple(tables["aggregate"][0]) == AGGREGATE
    known = expected()
    for name in ("score", "pbp_lower", "pbp_upper", "pbp_rank", "pbp_rank_best", "pbp_rank_worst"):
        values = known[known["quantity"] == name].set_index("algorithm")["value"].astype(float)
        shown = {row["algorithm"]: row[name.removeprefix("pbp_")] for row in tables["aggregate"]}
        assert shown == pytest.approx(values.to_dict(), abs=1e-9)
    assert sum(row["weight"] for row in tables["weights"]) == pytest.approx(1)
    assert tables["settings"]["delta"] == 0.05 and tables["settings"]["methods"] == ["pbp"]
    assert tables["settings"]["bounds"]["E0"] == [pytest.approx(-2.8), pytest.approx(4.0)]


def test_what_the_scores_say_comes_before_bounds(table):
    """A method that takes too long leaves the user with that."""
    done = call(table, "--quiet")
    overview, bounds = done.stdout.split("\n\n")
    samples = samples_of(mini())
    known = metrics(samples, ["iqm", "mean"]).set_index(["metric", "algorithm"])
    rows = [re.split(r"  +", line) for line in overview.splitlines()[2:]]
    best = rows[0][0]
    order = [known.loc[("iqm", row[0]), "value"] for row in rows]
    assert order == sorted(order, reverse=True)
    z, names = payoffs(samples), samples.algorithms
    above = 0.5 + (z - z.transpose(2, 1, 0)).mean(axis=1)[:, names.index(best)] / 2
    for row in rows:
        for name, text in zip(("iqm", "mean"), row[1:3], strict=True):
            value, low, high = known.loc[(name, row[0])]
            assert text == f"{value:.3f} ({low:.3f} to {high:.3f})"
        assert row[3:] == ([] if row[0] == best else [f"{100 * above[names.index(row[0])]:.0f}%"])
    assert bounds.splitlines()[0].endswith("; all intervals of pbp 95% together:")
    late = call(table, "--minutes", 0, "--quiet")
    assert late.exit_code == 2 and late.stdout.strip() == overview.strip()


@pytest.mark.slow
def test_all_methods_and_a_smaller_delta(table):
    rows = terminal.rows("evaluate", table, "--method", "all", "--resamples", 40, "--delta", 0.2)
    assert list(dict.fromkeys(row["method"] for row in rows)) == ["pbp", "pbp-t", "bootstrap"]
    for row in rows:
        assert float(row["lower"]) <= float(row["score"]) <= float(row["upper"])


def test_mapped_columns_parquet_and_restriction(table, tmp_path):
    other = tmp_path / "runs.parquet"
    mini().rename(columns={"algorithm": "agent", "environment": "task", "score": "return"}).assign(
        kind="x"
    ).to_parquet(other)
    mapped = "--algorithm-column agent --algorithm-column kind --environment-column task"
    mapped = (*mapped.split(), "--score-column", "return")
    tables = tables_of(other, *mapped, "--algorithms", "A2 x, A0 x", "--environments", "E1")
    assert [row["algorithm"] for row in tables["environments"]] == ["A0 x", "A2 x"]
    plain = tables_of(table, "--algorithms", "A2,A0", "--environments", "E1")
    for one, other in zip(plain["aggregate"], tables["aggregate"], strict=True):
        assert one["score"] == other["score"]


def test_bounds_and_identical_definitions(table, tmp_path):
    bounds, pairs = tmp_path / "bounds.csv", tmp_path / "same.csv"
    bounds.write_text("environment,low,high\nE0,-10,10\nE1,-10,10\n")
    pairs.write_text("environment,algorithm,algorithm\nE0,A0,A1\nE1,A0,A1\n")
    tables = tables_of(table, "--bounds", bounds, "--identical", pairs)
    scores = {row["algorithm"]: row for row in tables["aggregate"]}
    assert tables["settings"]["bounds"]["E1"] == [-10, 10]
    assert scores["A0"]["score"] != pytest.approx(0.394571498148)
    # what is left out says nothing
    assert call(table, "--identical", pairs, "--algorithms", "A0,A2", "--quiet").exit_code == 0


def test_page_and_latex(table, tmp_path):
    forms = ("--html", "--latex", "--out", tmp_path / "out")
    done = call(table, *forms, "--method", "pbp-t", "--table", "environments")
    assert done.exit_code == 0, done.output
    files = {path.name for path in (tmp_path / "out").iterdir()}
    tables = {"evaluation.json", "aggregate.csv", "environments.csv", "weights.csv"}
    assert files == {"index.html", "aggregate.svg", "weights.svg", "tables.tex"} | tables
    assert "<svg" in (tmp_path / "out" / "aggregate.svg").read_text()
    page = (tmp_path / "out" / "index.html").read_text()
    kept.compare_page("evaluation", page, table.parent)
    read = Page(page)  # tags match
    targets = {a["href"][1:] for _, a in read.elements if a.get("href", "").startswith("#")}
    assert targets <= ids_of(read)
    assert not re.search(r'(?:src|href)="https?:', page)
    assert page.count('<svg class="plot"') == 2 + 2 * 2
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    captions = [re.search(r"<caption>(.*?)</caption>", table) for table in tables]
    assert len({caption and caption[1] for caption in captions}) == len(tables) and all(captions)
    tex = (tmp_path / "out" / "tables.tex").read_text()
    beside = {p.name: p.read_text() for p in (tmp_path / "out").glob("*.[cj]s*")}
    kept.compare(
        "tables of an evaluation",
        {"tables.tex": tex, "printed": done.stdout, **beside},
        table.parent,
    )
    assert tex.count("{") == tex.count("}")
    assert tex.count(r"\begin{tabular}") == tex.count("& Rank (best") == 3


def test_metrics_are_added_when_asked_for(table, tmp_path, monkeypatch):
    for function in (metrics, performance_profiles, probability_of_improvement):
        monkeypatch.setattr(
            f"jbrl.stats.evaluation.metrics.{function.__name__}",
            functools.partial(function, resamples=20),
        )
    tables = tables_of(table, "--metrics", "--html", "--out", tmp_path)
    names = {"mean", "median", "iqm", "optimality_gap"}
    assert {row["metric"] for row in tables["metrics"]} == names
    assert len(tables["profiles"]) == 3 * 101 and len(tables["improvement"]) == 3 * 2
    page = (tmp_path / "index.html").read_text()
    for text in ("IQM", "Performance profiles", "Probability of improvement"):
        assert text in page
    shown = Page(page).cells
    for row in tables["metrics"]:
        text = f"{row['value']:.3f} ({row['lower']:.3f}, {row['upper']:.3f})"
        assert shown[shown.index(row["algorithm"], shown.index("Optimality gap")) :].index(text) < 5
    for row in tables["improvement"]:
        assert (
            f"{row['value']:.2f}" in shown and f"{row['lower']:.3f} to {row['upper']:.3f}" in page
        )


def test_a_probability_of_improvement_has_its_interval():
    pairs = pd.DataFrame({"value": [0.6], "lower": [0.5], "upper": [0.7]}, index=[["a"], ["b"]])
    assert _improvement(pairs, "a", "b") == doc.Cell("0.60", hint="0.500 to 0.700")


def test_names_cannot_break_the_page_or_the_tables(tmp_path):
    odd = mini().replace(
        {"A0": "<script>&_%", "A1": "a\\b 日本", "A2": '[x|y] − "z"'}
        | {"E0": "one_two", "E1": "one two"}
    )
    path = tmp_path / "odd.csv"
    odd.to_csv(path, index=False)
    assert call(path, "--html", "--latex", "--out", tmp_path, "--quiet").exit_code == 0
    assert "<script>&_%" not in (tmp_path / "index.html").read_text()
    tex = (tmp_path / "tables.tex").read_text()
    assert r"\textless{}script\textgreater{}\&\_\%" in tex and r"a\textbackslash{}b" in tex
    # no argument of the \\ before it
    assert r"{[}x\textbar{}y{]} \ensuremath{-} \textquotedbl{}z\textquotedbl{}" in tex
    labels = re.findall(r"\\label\{(.*)\}", tex)
    assert len(labels) == 3 and len(set(labels)) == 3


def test_an_algorithm_may_be_called_like_a_column_of_a_figure(tmp_path):
    (tmp_path / "t.csv").write_text(HEAD + "sum,x,1\nB,x,2\n")
    terminal.succeeds("evaluate", tmp_path / "t.csv", "--html", "--out", tmp_path, "--quiet")


AGENTS = ["Random", "Q-learning(α = 0.1)", "Q-learning(α = 0.3)"]


@pytest.mark.slow
def test_a_directory_of_results(tmp_path):
    study = {
        "study": {"name": "tiny", "n_environments": 5, "horizon": 8},
        "experiments": [
            {"name": "GC", "prior": "GC", "test": "GC"},
            {"name": "other", "prior": "UGC", "test": "GC"},
        ],
        "agents": [
            *({"algorithm": name} for name in ("Random", "Optimal")),
            {"algorithm": "Q-learning", "alpha": [0.1, 0.3]},
        ],
    }
    jbrl.run(study, tmp_path / "out")
    rows = Results(tmp_path / "out").score_table()
    assert rows["algorithm"].drop_duplicates().tolist() == AGENTS
    assert rows.groupby(["algorithm", "environment"]).size().tolist() == [5] * 6
    for options, names in (((), AGENTS), (("--oracles",), [*AGENTS, "Optimal"])):
        tables = tables_of(tmp_path / "out", *options)
        assert {row["algorithm"] for row in tables["aggregate"]} == set(names)
    assert call(tmp_path / "out", "--html").exit_code == 0
    assert (tmp_path / "out" / "evaluation" / "index.html").exists()


def test_a_directory_of_results_of_episodes(tmp_path):
    """Scores of MDPs and of environments are ranked together: only their order within an
    experiment counts.
    """
    learners = [{"algorithm": "Random"}, {"algorithm": "Q-learning", "alpha": [0.1, 0.3]}]
    chains = [
        {"name": "Chain", "problem": "Chain-10d", "episodes": 3},
        {"name": "slippery", "problem": "Chain-10s", "episodes": 3},
    ]
    settings = {"name": "x", "n_environments": 4}
    study = load_study({"study": settings, "experiments": chains, "agents": learners})
    store, units = opened(tmp_path, study)
    for number, unit in enumerate(units):
        store.save(unit, HEADER, np.arange(4.0) + number - 200)
    rows = Results(tmp_path).score_table()
    assert rows["algorithm"].drop_duplicates().tolist() == AGENTS
    assert tables_of(tmp_path, "--html")["aggregate"][0]["algorithm"] == "Q-learning(α = 0.3)"
    assert "MDP" not in (tmp_path / "evaluation" / "index.html").read_text()


def test_parameters_distinguish_agents_of_several_directories(tmp_path):
    chains = [{"name": "Chain", "problem": "Chain-10d", "episodes": 3}]
    for seed, alpha in enumerate((0.1, 0.3)):
        agents = [{"algorithm": "Random"}, {"algorithm": "Q-learning", "alpha": alpha}]
        settings = {"name": "x", "n_environments": 4, "seed": seed}
        study = load_study({"study": settings, "experiments": chains, "agents": agents})
        store, units = opened(tmp_path / str(seed), study)
        for unit in units:
            store.save(unit, HEADER, np.arange(4.0))
    rows = tables_of(tmp_path / "0", tmp_path / "1")["environments"]
    assert {row["algorithm"]: row["n"] for row in rows} == dict(zip(AGENTS, (8, 4, 4), strict=True))


HEAD = "algorithm,environment,score\n"
GOOD = HEAD + "A,x,1\nB,x,2\nA,x,3\nB,x,4\n"
REFUSED = {
    "nan": (HEAD + "A,x,1\nB,x,nan\n", "", "row 2 (algorithm B, environment x) … 'nan'"),
    "delta": (GOOD, "--delta 0.6", "delta = 0.6 … above 0 up to 0.5"),
    "columns": (
        GOOD,
        "--score-column return",
        "bad.csv … no column 'return' … known: algorithm, environment, score",
    ),
    "algorithm": (GOOD, "--algorithms A,C", "unknown algorithm 'C' … known: A, B"),
    "environment": (GOOD, "--environments z", "unknown environment 'z'"),
    "bounds": (GOOD, "--bounds bounds.csv", "score 4.0 lies outside [0, 3]"),
    "bounds twice": (GOOD, "--bounds twice.csv", "twice.csv … environment 'x' occurs twice"),
    "bounds file": (GOOD, "--bounds none.csv", "none.csv … No such file"),
    "identical": (GOOD, "--identical same.csv", "unknown algorithm … 'Z'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_sentence(tmp_path, monkeypatch, case):
    text, options, words = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text(text)
    Path("bounds.csv").write_text("environment,low,high\nx,0,3\n")
    Path("twice.csv").write_text("environment,low,high\nx,0,3\nx,0,9\n")
    Path("same.csv").write_text("environment,algorithm,algorithm\nx,A,Z\n")
    terminal.refused(call("bad.csv", *options.split()), *words.split(" … "))


def test_what_was_found_is_printed_where_no_page_can_be_written(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(GOOD)
    done = call(path, "--html", "--out", path / "x", "--format", "json", "--quiet")
    assert done.exit_code == 2 and f"error: {path / 'x'}: the evaluation cannot be" in done.stderr
    assert json.loads(done.stdout) == tables_of(path)


def test_names_with_commas_can_be_chosen(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(HEAD + '"A, b",x,1\nB,x,2\nC,x,3\n"A, b",x,3\nB,x,4\nC,x,5\n')
    found = tables_of(path, "--algorithms", "A, b", "--algorithms", "B,")
    assert {row["algorithm"] for row in found["aggregate"]} == {"A, b", "B"}


def test_scores_may_be_as_large_as_numbers_are(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(HEAD + "A,x,1e308\nA,x,-1e308\nB,x,1e308\nB,x,0\n")
    found = jbrl.metrics(path)["metrics"].query("metric == 'mean'").set_index("algorithm")["value"]
    assert found.to_dict() == {"A": 0.5, "B": 0.75}


def test_one_sample_has_no_interval_by_resampling(tmp_path):
    """Drawn again and again, it would have one of no width."""
    path = tmp_path / "few.csv"
    path.write_text(HEAD + "A,x,1\nA,x,3\nB,x,2\nC,x,3\nC,x,0\nA,y,0\nA,y,1\nB,y,1\nC,y,0\nC,y,1\n")
    tables = tables_of(path, "--metrics", "--html", "--out", tmp_path)
    for row in (*tables["metrics"], *tables["profiles"], *tables["improvement"]):
        single = "B" in (row["algorithm"], row.get("other"))
        assert single == (row["lower"] is None) == (row["upper"] is None), row
        assert single or row["lower"] <= row["value"] <= row["upper"]
    found = {(row["metric"], row["algorithm"]): row for row in tables["metrics"]}
    assert found["mean", "B"]["value"] == (2 / 3 + 1) / 2 == found["iqm", "B"]["value"]
    pairs = {(row["algorithm"], row["other"]): row for row in tables["improvement"]}
    assert pairs["A", "C"]["value"] == (2.5 / 4 + 2 / 4) / 2
    cells = Page((tmp_path / "index.html").read_text()).cells
    assert "0.833" in cells and any(cell.startswith("0.583 (") for cell in cells)
    assert not any("nan" in cell for cell in cells)
    lines = call(path, "--quiet").stdout.splitlines()
    assert lines[0].endswith("by resampling (none where a cell has one score):")
    assert next(line for line in lines if line.startswith("B")).split() == ["B", "0.833", "0.833"]
    path.write_text(path.read_text() + "B,x,1\nB,y,1\n")
    assert "(too narrow: 2 scores in a cell are few)" in call(path, "--quiet").stdout
    path.write_text(HEAD + "A,x,1\nB,x,2\nA,x,3\n")
    refused = call(path, "--method", "bootstrap", "--table", "weights")
    terminal.refused(refused, "bootstrap: algorithm 'B' has one sample on environment 'x'")


def test_the_same_file_twice_is_refused(table):
    terminal.refused(call(table, table), "has the same rows as")


def test_a_wide_table_is_evaluated_like_the_long_one(tmp_path):
    long, wide = tmp_path / "long.csv", tmp_path / "wide.csv"
    long.write_text(HEAD + "A,x,1\nB,x,2\nA,y,3\nB,y,5\nA,x,2\nB,x,4\nA,y,0\nB,y,9\n")
    wide.write_text("algorithm,run,x,seed,y\nA,1,1,0,3\nB,1,2,0,5\nA,2,2,0,0\nB,2,4,0,9\n")
    assert tables_of(wide) == tables_of(long)
    terminal.refused(call(wide, "--score-column", "return"), "no column 'environment'")


def test_names_that_look_the_same_are_doubted(tmp_path):
    path = tmp_path / "blanks.csv"
    path.write_text(HEAD + "A,x,1\nA ,x,2\nA,Y,3\nA ,Y,4\nA,y,3\nA ,y,4\n")
    with pytest.warns(JbrlWarning) as told:
        assert jbrl.evaluate(path).samples.shape == (2, 3)
    assert [str(one.message) for one in told] == [
        "algorithms 'A' and 'A ' differ only in blanks or in upper and lower case",
        "environments 'Y' and 'y' differ only in blanks or in upper and lower case",
    ]


def test_one_score_knows_a_distribution_to_one():
    first = Separation(1, 1.59, 1, "A", {}, None, 0).sentences()[0]
    assert "with 1 score a distribution is known to ±1.00 only" in first


def test_notes_say_what_bounds_leave_open_unless_told_not_to(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text(
        HEAD + "".join(f"{a},x,{t + 0.1 * (a == 'B')}\n" for t in range(9) for a in "AB")
    )
    done = call(path, "--format", "json")
    assert "note: pbp separates none of 1 pairs of algorithms: with 9 scores" in done.stderr
    assert call(path, "--format", "json", "--quiet").stderr == ""
    refused = call(path, "--minutes", "0")
    assert refused.exit_code == 2 and "pbp: 2 algorithms on 1 environments take" in refused.stderr
    path.write_text(path.read_text() + "A,y,5\nB,y,5\n")
    done = call(path)
    assert "note: no overview: all scores of environment 'y' are the same: give" in done.stderr
    assert "iqm" not in done.stdout and "iqm" in call(path, "--environments", "x").stdout


@pytest.mark.slow
def test_many_long_names_fit_into_the_figures(tmp_path):
    """16 names of 30 characters: a legend of that height left nothing to the axes."""
    rng = np.random.default_rng(0)
    names = [f"{'an algorithm of a long name':<28}{i:02d}".replace(" ", "_") for i in range(16)]
    rows = [(name, e, rng.normal()) for name in names for e in ("x", "y" * 50) for _ in range(4)]
    path = tmp_path / "long.csv"
    pd.DataFrame(rows, columns=["algorithm", "environment", "score"]).to_csv(path, index=False)
    done = call(path, "--html", "--out", tmp_path, "--quiet", "--method", "pbp-t")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "index.html").read_text()
    assert "1 (1–16)" in page
    labels = labels_of([*names, "x" * 90 + "1", "x" * 90 + "2"], 34, 1)
    assert len(set(labels)) == len(labels) and max(map(len, labels)) <= 38
    samples = samples_of(pd.DataFrame(rows, columns=["algorithm", "environment", "score"]))
    drawn = curves(samples, 0, 0.05, styles(names), quantiles=True).figure
    [axes] = drawn.axes
    assert axes.get_position().height * drawn.get_figheight() > 2.5  # inches
    drawn = weights(evaluate_samples(samples, ["pbp-t"])).figure
    drawn.draw_without_rendering()
    lowest = min(label.get_window_extent().y0 for label in drawn.axes[0].get_xticklabels())
    assert lowest >= 0  # inside the figure
