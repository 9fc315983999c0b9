"""Content of a report in every form, and the page about searches."""

import dataclasses
import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import jbrl
from jbrl.report import chapters, sections
from jbrl.report.axes import styles
from jbrl.report.chapters import document, write_report
from jbrl.report.content import Cell, Heading, Items, Paragraph, Plot, Span, Table
from jbrl.report.strategies import LISTED
from jbrl.report.text import seconds_text
from jbrl.stats.table import oracles_of
from tests import kept
from tests.report.synthetic import MANIFEST, study, undo
from tests.report.synthetic import plain as text
from tests.report.test_html import Page, ids_of


def report_of(scores, returns, manifest=MANIFEST):
    oracles = oracles_of(manifest)
    parts = sections.sections(scores, returns, oracles)
    return document(parts, styles(scores["algorithm"], oracles), manifest)


@pytest.fixture(scope="module")
def report():
    return report_of(*study())


def chapter(report, id):
    return next(c for c in report.chapters if c.id == id)


def blocks(report, kind, id=None):
    """The blocks of a kind, of one chapter or of all."""
    chapters = report.chapters if id is None else [chapter(report, id)]
    return [block for part in chapters for block in part.blocks if isinstance(block, kind)]


def reasons(report):
    """Why figures of GC are not drawn."""
    return [text(words) for b in blocks(report, Items, "gc") for words in b.items]


def strings(value):
    """All texts within a piece of content."""
    if isinstance(value, str):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, Plot):
        for field in dataclasses.fields(value):
            yield from strings(getattr(value, field.name))
    elif isinstance(value, tuple):
        for part in value:
            yield from strings(part)


def test_chapters(report):
    assert [(c.id, c.title, c.kind) for c in report.chapters] == [
        ("Summary", "Summary", ""),
        ("gc", "GC", "experiment"),
        ("gc-inaccurate", "GC, inaccurate", "experiment"),
        ("Settings", "Settings and machine", ""),
        ("Reading", "How to read this report", ""),
    ]
    assert report.title == "small"
    assert report.version == "0.1.0"
    assert report.notices == ()


def test_content_holds_no_markup(report):
    found = [s for part in (report.chapters, report.facts) for s in strings(part)]
    assert len(found) > 300
    assert not [s for s in found if re.search(r"<[a-z/!]|&\w+;|[\\`]", s)]


def test_tables_are_whole(report):
    for table in blocks(report, Table):
        assert table.rows
        assert {len(row.cells) for row in table.rows} == {len(table.columns)}


def test_ids_differ_and_targets_exist(report):
    ids = [part.id for part in (*blocks(report, (Plot, Table)), *report.chapters)]
    assert len(ids) == len(set(ids))
    words = [w for p in blocks(report, Paragraph) for w in p.words]
    words += [w for i in blocks(report, Items) for item in i.items for w in item]
    targets = {w.target for w in words if isinstance(w, Span)}
    targets |= {c.target for t in blocks(report, Table) for c in t.columns}
    assert {t[1:] for t in targets if t} <= set(ids)


def test_figures_have_data_without_gaps_in_names(report):
    for plot in blocks(report, Plot):
        assert len(plot.drawing.data) > 0
        assert not plot.drawing.data.columns.has_duplicates
        assert plot.caption.endswith((".", ")."))


def test_overview_says_best_and_tied(report):
    table = next(t for t in blocks(report, Table) if t.kind == "overview")
    found = {row.cells[0].text: row.cells[1] for row in table.rows}
    assert found["BEB"] == Cell(
        "40.00 ± 3.83", pytest.approx(40.0), True, "best", "β = 2.5, bonus = visits"
    )
    assert (found["e-Greedy"].standing, found["Random"].standing) == ("tied", "")
    assert table.rows[-1].kind == "oracle"


def test_undone_units_are_announced_and_listed():
    scores, returns = undo(*undo(*study(), "BEB", "failed"), "Random")
    reason = scores["status"].map({"failed": "no memory"}).fillna("")
    scores.loc[scores["algorithm"] == "Optimal", "device"] = "gpu"
    report = report_of(scores.assign(reason=reason), returns)
    assert text(report.notices[0].words).startswith("2 of 10 units have no result")
    undone = chapter(report, "Undone")
    assert undone.count == 2 and undone.blocks[-1].sortable
    cells = [[getattr(cell, "text", cell) for cell in row.cells] for row in undone.blocks[-1].rows]
    assert sorted(cells) == [
        [
            "GC",
            "BEB (β = 2.5, bonus = visits)",
            '{"beta": 2.5, "bonus": "visits"}',
            "failed",
            "no memory",
        ],
        ["GC", "Random", "{}", "missing", ""],
    ]
    table = next(t for t in blocks(report, Table) if t.id == "gc--agents")
    devices = [getattr(row.cells[-1], "text", row.cells[-1]) for row in table.rows]
    assert sorted(devices) == ["cpu x2", "cpu x2", "gpu", "–", "–"]


def test_undone_units_of_several_seeds_are_counted_and_listed_by_their_seed(tmp_path):
    scores, returns = undo(*study(), "BEB", "failed")
    later = scores.assign(seed=7, reason=scores["status"].map({"failed": "no memory"}))
    units = pd.concat([scores.assign(status="done", reason=None), later], ignore_index=True)
    page = write_report(scores, returns, MANIFEST, tmp_path, form="markdown", units=units)
    words = page.read_text(encoding="utf-8")
    kept.compare("undone units", {"Markdown": words})
    assert "**1 of 20 units** have no result" in words
    assert re.search(r"\| GC \| BEB .* \| 7 \| failed \| no memory \|", words)


def test_best_agent_of_each_algorithm_as_in_figs_9_and_13(report):
    table = next(t for t in blocks(report, Table) if t.id == "gc--best")
    assert [
        (row.cells[0].text, row.cells[1].text, row.cells[2].text, row.cells[3].standing)
        for row in table.rows
    ] == [
        ("BEB", "β = 2.5, bonus = visits", "40.00 ± 3.83", "best"),
        ("e-Greedy", "ε = 0.1", "39.80 ± 3.86", "tied"),
        ("Random", "", "30.00 ± 3.83", "quiet"),
        ("Optimal", "", "80.00 ± 5.75", "oracle"),
    ]
    assert [row.cells[2].strong for row in table.rows] == [True, False, False, False]
    assert table.sortable


def test_what_is_not_drawn_is_said_with_the_reason(report):
    [absent] = blocks(report, Items, "gc")
    assert Span("latency = true", "code") in absent.items[0]
    assert reasons(report) == [
        (
            "Score against latency is not drawn: it was not measured (latency = true in the "
            "study measures it)."
        )
    ]


def test_other_mdps_are_refused_with_the_reason_and_the_rest_is_there():
    scores, returns = study(experiments=[("GC", "GC", "GC")])
    scores["offline_seconds"] = [0.0, 0.0, 1.0, 2.0, 0.0]
    report = report_of(scores, returns[(returns["algorithm"] != "Random") | (returns["unit"] < 30)])
    paragraphs = blocks(report, Paragraph, "gc")
    [notice] = (text(b.words) for b in paragraphs if b.role == "notice")
    assert notice.startswith("No test was made: paired test: BEB")
    assert "Random {} (30 environments) were not played on the same environments" in notice
    plots = [b.id for b in blocks(report, Plot, "gc")]
    assert plots == ["gc--online", "gc--offline", "gc--distribution"]
    why = " ".join(reasons(report))
    assert "Best algorithm within time bounds is not drawn: time bounds:" in why
    assert "Difference from the best is not drawn: no test was made." in why
    agents = next(b for b in blocks(report, Table, "gc") if b.title == "All agents")
    assert len(agents.rows) == 5


def test_no_times_at_all():
    scores, returns = study(experiments=[("GC", "GC", "GC")])
    seconds = {f"{name}_seconds" for name in ("offline", "online", "latency", "compile")}
    report = report_of(scores.assign(**dict.fromkeys(seconds, float("nan"))), returns)
    kinds = [b.id.removeprefix("gc--") for b in blocks(report, Plot)]
    assert kinds == ["difference", "fraction", "distribution", "ranks"]
    why = "Score against online time is not drawn: no agent has a known online time per decision."
    assert reasons(report)[1] == why and len(reasons(report)) == 4


def test_the_summary_answers_first(report):
    often, heading, taken, closing, *_ = report.chapters[0].blocks
    assert text(often.words) == (
        "Best, or tied with the best: BEB in 2 of 2 experiments and e-Greedy in 2."
    )
    assert heading.text == "Which algorithm to take at which computation time"
    assert [text(words) for words in taken.items] == [
        "GC. Take BEB if a decision may take 30 µs or more. As good with any time: e-Greedy.",
        "GC, inaccurate. Take BEB if a decision may take 30 µs or more. As good with any time: "
        "e-Greedy.",
    ]
    assert "the best, or tied with the best" in text(closing.words)


def test_details_are_folded_behind_the_answer(report):
    content = chapter(report, "gc").blocks
    folds = [k for k, b in enumerate(content) if isinstance(b, Heading) and b.folds]
    shown = content[: folds[0]]
    assert [b.id for b in shown if isinstance(b, Plot)] == ["gc--choice"]
    assert text(shown[2].words).startswith("Take BEB if a decision may take 30 µs")
    assert not [b for b in shown if isinstance(b, Table)]
    assert [content[k].text for k in folds] == [
        "Scores and computation times",
        "Differences, distributions and ranks",
        "Winners from left to right",
        "Tables of the agents",
        "Figures that are not drawn",
    ]


def test_tables_have_titles_of_their_own(report):
    titles = [(t.title, t.id.split("--")[0]) for t in blocks(report, Table)]
    assert all(title for title, _ in titles)
    assert len(titles) == len(set(titles))


AGENTS = [
    {"algorithm": "DQN", "min_replay": 4},
    {"algorithm": "BAMCP", "simulations": 4, "depth": 3},
    {"algorithm": "OPPS-DS", "space": "F1", "budget": 20},
]


def rows_of(report: str, title: str) -> dict[str, list[str]]:
    """Return the cells of the first table below a heading, by the text of the first cell."""
    _, below = report.split(f"### {title}\n", 1)
    lines = below[below.index("\n| ") :].strip().split("\n\n")[0].splitlines()
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row for row in rows}


@pytest.mark.slow
def test_a_report_shows_a_deep_agent_beside_planners_with_computation_times(tmp_path):
    study = {
        "study": {"name": "deep and planners", "n_environments": 4, "horizon": 8},
        "experiments": [{"name": "GC", "problem": "GC"}],
        "agents": AGENTS,
    }
    results = jbrl.run(study, tmp_path, progress=False)
    scores = results.scores.set_index("algorithm")
    assert list(scores["status"]) == ["done"] * 3
    assert (scores["online_seconds"] > 0).all()
    assert scores["offline_seconds"]["OPPS-DS"] > scores["offline_seconds"]["DQN"]
    # what follows a search takes microseconds, and is not the processor time of the search
    assert scores["offline_processor_seconds"]["OPPS-DS"] > 1e-3
    report = results.report(form="markdown").read_text(encoding="utf-8")
    rows = rows_of(report.split('<a id="gc"></a>', 1)[1], "Best agent of each algorithm")
    assert rows["Algorithm"][-2:] == ["Offline", "Online"]
    for name in ("DQN", "BAMCP", "OPPS-DS"):
        offline, online = (scores[f"{kind}_seconds"][name] for kind in ("offline", "online"))
        assert rows[name][-2:] == [seconds_text(offline), seconds_text(online)]


# what it has to say stands on the other page
LITTLE = study(n=4, experiments=[("GC", "GC", "GC")], agents=[("Random", {})])


def searched(seeds=(0,)):
    """Two searches on GC and one on UGC; the strategies of each by decreasing pulls."""
    parts = []
    for prior, budget, arms in (("GC", 100, 3), ("GC", 1000, 14), ("UGC", 100, 3)):
        for seed in seeds:
            pulls = np.sort(
                np.random.default_rng(budget + seed).multinomial(budget, [1 / arms] * arms)
            )[::-1]
            parameters = json.dumps({"budget": budget, "space": "F3"})
            table = {"prior": prior, "algorithm": "OPPS-DS", "parameters": parameters, "seed": seed}
            names = ["<Q0>", *(f"|Q{i}|+{budget}" for i in range(1, arms))]
            table |= {"strategy": names, "pulls": pulls, "mean": 40.0 - np.arange(arms)}
            table |= {"std": 5.0, "ci95": 0.5, "discarded": np.arange(arms) == 2}
            table |= {"chosen": np.arange(arms) == 0, "consumed": budget, "simulated": budget + 7}
            parts.append(pd.DataFrame(table | {"offline_seconds": 0.25}))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_report(*LITTLE, MANIFEST, folder, searched())
    return folder


def searches(folder):
    """The page about them."""
    return (folder / "strategies.html").read_text(encoding="utf-8")


def test_each_prior_has_its_searches_and_their_best_strategies(out):
    source = searches(out)
    kept.compare_page("strategies", source)
    page = Page(source)
    text = " ".join("".join(page.text).split())
    assert "Prior GC" in text and "Prior UGC" in text
    cells = [cell.strip() for cell in page.cells]
    assert [cells.count(f"OPPS-DS (budget = {budget})") for budget in (100, 1000)] == [2, 1]
    most = str(searched().query("parameters.str.contains('1000')")["pulls"].max())
    assert most in cells and "40.00 ± 0.50" in cells and "7.0%" in cells and "250 ms" in cells
    # each search once, the surest of each prior beside its figure
    assert cells.count("chosen") == cells.count("discarded") == 3 and cells.count("<Q0>") == 3 + 3
    assert "|Q13|+1000" not in cells  # ten are listed


def test_the_figure_shows_what_the_table_lists(out):
    text = searches(out)
    figure = re.search(r'<svg class="plot" id="gc--arms".*?</svg>', text, flags=re.S).group()
    assert figure.count('class="mark"') == LISTED
    assert f"<caption><div>The {LISTED} tried most of 14" in text
    assert text.count("<table") == text.count("<caption>") == 2 + 3


@pytest.mark.slow
def test_a_training_is_shown_by_stretches_in_order(tmp_path):
    names = [f"to lifetime {64 * (n + 1):,}" for n in range(14)]
    trained = searched().query("parameters.str.contains('1000')")
    trained = trained.assign(strategy=names, algorithm="BeliefPPO", chosen=np.arange(14) == 13)
    write_report(*study(), MANIFEST, tmp_path, trained)
    text = searches(tmp_path)
    assert f"<caption><div>{LISTED} of 14 stretches of it" in text
    listed = [name for name in names if f'<th scope="row">{name}' in text]
    assert len(listed) == LISTED and listed[-1] == names[-1]
    places = [text.index(f'<th scope="row">{name}') for name in listed]
    assert places == sorted(places)


def test_strategies_without_a_pull_are_neither_drawn_nor_listed(tmp_path):
    never = searched().assign(pulls=lambda rows: rows["pulls"].where(rows["chosen"], 0))
    write_report(*LITTLE, MANIFEST, tmp_path, never)
    text = searches(tmp_path)
    assert "The 1 tried most of 14" in text
    assert "|Q1|" not in text


def test_ids_are_different_and_nothing_is_loaded(out):
    text = searches(out)
    assert len(ids_of(Page(text))) > 2
    assert "http://" not in text.replace("http://www.w3.org", "") and "src=" not in text


def test_the_report_leads_there(out):
    assert 'href="strategies.html"' in (out / "index.html").read_text(encoding="utf-8")


def test_seeds_are_named_where_there_are_several(tmp_path):
    write_report(*LITTLE, MANIFEST, tmp_path, searched(seeds=(0, 1)))
    assert "OPPS-DS (budget = 100, seed 1)" in searches(tmp_path)


@pytest.mark.parametrize("strategies", [None, searched().iloc[:0]])
def test_without_searches_there_is_no_such_page(tmp_path, strategies):
    write_report(*LITTLE, MANIFEST, tmp_path, strategies)
    assert not (tmp_path / "strategies.html").exists()
    assert "strategies.html" not in (tmp_path / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("n", "left_out"), [(3, False), (4, True)])
def test_an_answer_has_three_sentences_at_most(monkeypatch, n, left_out):
    chains = [(float(k), [(0.0, f"agent {k}")]) for k in range(n)]
    monkeypatch.setattr(chapters, "_chains", lambda _: chains)
    agents = pd.DataFrame({"algorithm": ["A", "B"], "best": [True, False], "tied": False})
    section = SimpleNamespace(timed=agents, champions=agents, choice=None)
    said = text(chapters.advice(section))
    assert ("The map shows what lies between" in said) == left_out
    assert said.count("agent") == 3 and f"agent {n - 1}" in said
