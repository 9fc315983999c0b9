"""The published numbers, as they are packaged."""

import json
from importlib import resources
from pathlib import Path

import pytest

from jbrl.agents.registry import AGENTS
from jbrl.problems.problem import PROBLEMS
from jbrl.stats import published
from jbrl.stats.agreement import DEFECT, EXPLANATION, MISPRINT

ROOT = Path(__file__).parents[2]
ALGORITHMS = ["Random", "e-Greedy", "Soft-max", "OPPS-DS", "BAMCP", "BFS3", "SBOSS", "BEB"]
# The bold cells of Figs 9 and 13.
BEST = ["OPPS-DS", "BAMCP", "OPPS-DS", "OPPS-DS", "OPPS-DS", "OPPS-DS"]


def test_there_are_eight_algorithms_in_each_of_six_experiments():
    cells = published.cells()
    groups = cells.groupby(["case", "experiment"], sort=False)
    assert [list(rows["algorithm"]) for _, rows in groups] == [ALGORITHMS] * 6
    assert list(groups.groups) == [
        (case, e) for case in ("accurate", "inaccurate") for e in ("GC", "GDL", "Grid")
    ]
    assert [rows.loc[rows["mean"].idxmax(), "algorithm"] for _, rows in groups] == BEST
    assert set(cells["experiment"]) <= set(PROBLEMS)


@pytest.mark.parametrize(
    ("algorithm", "printed", "expected"),
    [
        ("Random", "", {}),
        ("e-Greedy", "epsilon=0.1", {"epsilon": 0.1}),
        ("BAMCP", "K=2500;depth=15", {"simulations": 2500, "depth": 15}),
        ("BFS3", "K=500;C=15;depth=50", {"trajectories": 500, "samples": 15, "depth": 50}),
        ("SBOSS", "epsilon=1e-06;delta=0.0001", {"epsilon": 1e-6, "delta": 1e-4}),
        ("OPPS-DS", "max(Q0(x,u),|Q2(x,u)|)", {"formula": "max(Q0,|Q2|)"}),
    ],
)
def test_parameters_have_the_names_of_our_agents(algorithm, printed, expected):
    found = published.parameters(algorithm, printed)
    assert found == expected
    assert [type(v) for v in found.values()] == [type(v) for v in expected.values()]


def test_every_cell_can_be_played():
    for cell in published.cells().to_dict("records"):
        AGENTS[cell["agent"]].agent(**json.loads(cell["parameters"]))


def test_notes_are_about_cells_and_agents_and_pages_that_there_are():
    cells = published.cells()
    for note in published.notes().to_dict("records"):
        mine = cells
        for column in published.CELL:
            mine = mine[mine[column] == note[column]] if note[column] else mine
        assert len(mine), note
        assert note["kind"] in (DEFECT, MISPRINT, EXPLANATION)
        assert note["explanation"]
        assert (ROOT / note["reference"].split("#")[0]).is_file(), note["reference"]
        if note["kind"] != EXPLANATION:
            AGENTS[note["played"]].agent(**json.loads(note["parameters"] or "{}"))


def test_a_cell_has_at_most_one_note_of_a_kind():
    for cell in published.cells().to_dict("records"):
        kinds = [note["kind"] for note in published.notes_on(cell)]
        assert len(kinds) == len(set(kinds)), cell


def test_notes_on_a_cell_are_those_of_its_algorithm_and_experiment():
    cell = {"case": "accurate", "experiment": "GC", "algorithm": "OPPS-DS"}
    (note,) = published.notes_on(cell)
    assert note["kind"] == MISPRINT
    note["kind"] = "changed"
    assert published.notes_on(cell)[0]["kind"] == MISPRINT
    assert published.notes_on({**cell, "experiment": "GDL"}) == []
    assert [n["played"] for n in published.notes_on({**cell, "algorithm": "BEB"})] == [
        "BEB-published"
    ]


def test_lists_of_winners_begin_with_random_and_hold_known_names():
    steps = published.winners_by_bound()
    lists = {
        key: list(rows["algorithms"])
        for key, rows in steps.groupby(["case", "experiment"], sort=False)
    }
    assert [len(found) for found in lists.values()] == [4, 5, 4, 5, 6, 4]
    assert all(found[0] == ("Random",) for found in lists.values())
    assert all(
        set(names) <= set(ALGORITHMS) - {"OPPS-DS", "Soft-max"} for names in steps["algorithms"]
    )


def test_tables_are_copies():
    for table in (published.cells, published.notes, published.winners_by_bound, published.program):
        changed = table()
        changed["case"] = "neither"
        assert not (table()["case"] == "neither").any()


def test_the_source_of_every_table_is_told():
    folder = resources.files("jbrl.stats.published")
    told = folder.joinpath("README.md").read_text(encoding="utf-8")
    assert all(f"`{file.name}`" in told for file in folder.iterdir() if file.name.endswith(".csv"))
