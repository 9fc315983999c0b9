"""Tables agree with the frames they are made from, and words about time with the winners."""

import io

import numpy as np
import pandas as pd
import pytest

from jbrl.base.errors import JbrlError
from jbrl.report import comparison, markdown, sections, tables
from jbrl.report.chapters import _chain, _chains, advice, standing, summary
from jbrl.report.content import Paragraph, Table
from jbrl.report.tables import winners
from jbrl.report.text import MDPS
from jbrl.stats import brackets
from jbrl.stats.time_bounds import stepped
from tests.report.synthetic import one_section, plain, study, undo


@pytest.fixture(scope="module")
def whole():
    return study()


@pytest.fixture(scope="module")
def parts(whole):
    return sections.sections(*whole, ["Optimal"])


def test_sections_keep_order_and_sort_agents(parts):
    assert [(s.name, s.id, s.prior, s.test, s.note) for s in parts] == [
        ("GC", "gc", "GC", "GC", ""),
        ("GC, inaccurate", "gc-inaccurate", "UGC", "GC", ""),
    ]
    assert list(parts[0].table["label"]) == [
        "Optimal",
        "BEB (β = 2.5, bonus = visits)",
        "e-Greedy (ε = 0.1)",
        "e-Greedy (ε = 0)",
        "Random",
    ]


def test_numbers_are_those_of_the_scores(whole, parts):
    scores, _ = whole
    found = pd.concat([s.table for s in parts])
    both = found.merge(
        scores, on=["experiment", "algorithm", "parameters"], suffixes=("", "_given")
    )
    assert len(both) == len(scores)
    for column in ("n", "mean", "std", "ci95", "online_seconds", "compile_seconds"):
        assert (both[column] == both[f"{column}_given"]).all(), column


def test_units_not_done_come_last_and_do_not_compete(whole):
    scores, returns = undo(*undo(*whole, "BEB", "failed"), "Optimal")
    section = sections.sections(scores, returns, ["Optimal"])[0]
    # as the study names them
    assert list(section.table["status"]) == ["done", "done", "done", "failed", "missing"]
    assert section.competitors["label"].iloc[0] == "e-Greedy (ε = 0.1)"
    assert section.competitors["best"].iloc[0]
    assert section.oracles.empty
    assert not section.table["best"].iloc[3:].any()
    assert section.note == ""


def test_other_mdps_are_refused_with_the_reason_but_the_rest_is_shown(whole):
    scores, returns = whole
    cut = returns[(returns["algorithm"] != "Random") | (returns["unit"] != 7)]
    section = sections.sections(scores, cut, ["Optimal"])[0]
    assert "not played on the same environments" in section.note
    assert "seed 0, unit 7" in section.note
    assert section.competitors["best"].iloc[0]
    assert not section.table["tied"].any()


def test_oracles_need_not_be_paired(whole):
    scores, returns = whole
    cut = returns[(returns["algorithm"] != "Optimal") | (returns["unit"] != 7)]
    assert sections.sections(scores, cut, ["Optimal"])[0].note == ""


def test_returns_of_a_finished_unit_are_missing(whole):
    scores, returns = whole
    section = sections.sections(scores, returns[returns["algorithm"] != "BEB"], ["Optimal"])[0]
    assert "no returns of BEB" in section.note
    assert section.competitors["label"].iloc[0].startswith("BEB")


def test_csv_can_be_read_back(parts, tmp_path):
    tables.write_tables(parts, tmp_path)
    found = pd.read_csv(tmp_path / "scores.csv")
    given = pd.concat([s.table for s in parts], ignore_index=True)
    assert list(found.columns) == [*sections.SCORES, *sections.MARKS]
    for column in ("experiment", "parameters", "tied", "best"):
        assert list(found[column]) == list(given[column]), column
    for column in ("mean", "ci95", "online_seconds", "z"):
        np.testing.assert_allclose(found[column], given[column], rtol=1e-15, err_msg=column)
    summary = pd.read_csv(tmp_path / "summary.csv")
    assert list(summary["algorithm"]) == ["BEB", "e-Greedy", "Random", "Optimal"] * 2
    assert list(summary.loc[summary["best"], "algorithm"]) == ["BEB", "BEB"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"mean": 3.0, "ci95": 1.0}, (0.0, 25.0, 50.0)),
        ({"mean": 5.0, "ci95": np.nan}, (75.0, 75.0, 75.0)),
        ({"mean": np.nan, "ci95": 1.0}, None),
        ({"mean": 3.0, "ci95": 1.0, "oracle": True}, None),
    ],
)
def test_bars_are_per_cent_of_their_scale(row, expected):
    assert tables._bar({"oracle": False, **row}, (2.0, 6.0)) == expected


def test_markdown_tables_survive_any_name():
    scores, returns = study(experiments=[("a|b\n*c*", "GC", "GC")])
    rows = markdown.table(tables.overview(sections.sections(scores, returns))).splitlines()
    assert all(row.replace("\\|", "").count("|") == 3 for row in rows)
    assert "a\\|b \\*c\\*" in rows[0]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda s, r: (s.drop(columns="prior"), r), "scores: no column prior"),
        (lambda s, r: (s, r.drop(columns="unit")), "returns: no column unit"),
        (lambda s, r: (s.iloc[:0], r), "scores: no rows"),
        (
            lambda s, r: (pd.concat([s, s.iloc[[1]]]), r),
            r"two rows for e-Greedy \{\"epsilon\": 0.0\} in experiment GC",
        ),
        (lambda s, r: (s.assign(mean=np.nan), r), "is done but its mean is nan"),
        (lambda s, r: (s, r.assign(score=np.nan)), "row 1 .*expected a finite number"),
    ],
)
def test_bad_input(whole, spoil, message):
    with pytest.raises(JbrlError, match=message):
        sections.sections(*spoil(*whole))


def test_reads_back_from_csv_as_well(whole):
    # Frames that went through a file have text where numbers are missing.
    scores, returns = undo(*whole, "BEB")
    again = pd.read_csv(io.StringIO(scores.to_csv(index=False)))
    section = sections.sections(again, returns, ["Optimal"])[0]
    assert list(section.table["status"]) == ["done"] * 4 + ["missing"]


# of Random, e-Greedy(0), e-Greedy(0.1), BEB, Optimal; BEB is best, e-Greedy(0.1) tied with it
ONLINE = [1e-8, 2e-7, 3e-7, 4e-7, 1e-8]
SLOW = [1e-5, 2e-4, 2e-4, 5e-4, 1e-5]  # to a caller
FAR = [1e-5, 2e-4, 1e-3, 5e-3, 1e-5]


def section_of(offline, online=ONLINE, **options):
    return one_section(offline_seconds=offline, online_seconds=online, **options)


def told(section):
    return plain(advice(section))


def test_a_tie_is_no_reason_for_another_algorithm_and_the_reference_is_no_choice():
    # BEB is the best from 400 µs on; e-Greedy(0.1) is tied with it
    assert told(section_of(0.0, SLOW)) == "Take e-Greedy if a decision may take 200 µs or more."
    assert told(section_of(0.0, [1e-5, 2e-4, np.nan, 5e-4, 1e-5])) == (
        "Take e-Greedy if a decision may take 200 µs and BEB from 500 µs on."
    )


def test_steps_that_a_caller_does_not_notice_are_one():
    """Amortised nanoseconds are less than the dispatch of a call; 390 µs are less than twice 200.
    A group has the time that all of it keep.
    """
    assert told(section_of(0.0)) == "Take BEB if a decision may take 30 µs or more."
    near = section_of(0.0, [1e-5, 2e-4, np.nan, 3.9e-4, 1e-5])
    assert told(near) == "Take BEB if a decision may take 390 µs or more."
    # 2.1 is more than twice 1, and 4.3 more than twice 2.1
    assert stepped(np.array([5.0, 0.0, 1.0, 2.1, 2.0, 4.3])).tolist() == [5, 0, 2, 2.1, 2, 5]
    latency = section_of(0.0, latency_seconds=[1e-5, 1e-5, np.nan, 4e-5, 1e-5])
    assert told(latency) == "Take BEB if a decision may take 30 µs or more."
    latency = section_of(0.0, latency_seconds=[1e-5, 1e-5, 5e-5, 4e-5, 1e-5])
    assert told(latency) == "Take e-Greedy if a decision may take 10 µs or more."


def test_on_a_busy_machine_the_time_of_the_processor_counts():
    """BEB has waited for others: 2 of 8 µs were its own; 1.4 times as long is no sign of others."""
    online, own = [1e-6, 2e-6, 7e-6, 8e-6, 1e-6], [1e-6, np.nan, 5e-6, 2e-6, 1e-6]
    section = section_of(0.0, online, online_processor_seconds=own)
    rows = section.timed["algorithm"].tolist()
    times = dict(zip(rows, section.contest.times("online"), strict=True))
    assert times["BEB"] == 2e-6 and times["Random"] == 1e-6
    assert sorted(section.contest.times("online")) == [1e-6, 2e-6, 2e-6, 7e-6]
    assert section.busy_text() == (
        "The machine was busy: 1 of 4 agents took up to 4.0 times as long as the processor worked "
        "for them. Time bounds count their processor times; all other times are wall times."
    )
    assert section_of(0.0, online).busy_text() == ""
    latency = section_of(0.0, online, online_processor_seconds=own, latency_seconds=SLOW)
    assert "busy: 1 of 4 agents" in latency.busy_text()
    assert "bounds count latency, and offline their processor times;" in latency.busy_text()
    trained = section_of([0, 3.0, 1e-4, 0, 0], offline_processor_seconds=[0, 1.0, 1e-5, 0, 0])
    assert "busy: 1 of 4 agents took up to 3.0 times" in trained.busy_text()


def test_offline_time_is_a_condition():
    # e-Greedy computes 2 s offline with ε = 0.1: without it BEB is alone at the top
    section = section_of([0.0, 0.0, 2.0, 0.0, 0.0], FAR)
    assert told(section) == "Take e-Greedy if a decision may take 200 µs and BEB from 5 ms on."
    later = section_of([0.0, 5.0, 5.0, 2.0, 0.0], FAR)
    assert told(later) == (
        "With at least 2 s of computation before the first decision: take BEB if a decision may "
        "take 5 ms or more. With 5 s or more of it: e-Greedy if a decision may take 200 µs or more."
    )


def test_a_better_agent_of_an_algorithm_that_computes_longer_offline_is_told():
    agents = [("Q-learning", {}), ("e-Greedy", {"epsilon": 0.0}), ("e-Greedy", {"epsilon": 0.1})]
    scores, returns = study(agents=agents, experiments=[("GC", "GC", "GC")])
    times = {"offline_seconds": [0.0, 0.0, 5.0], "online_seconds": 1e-3}
    assert told(sections.sections(scores.assign(**times), returns)[0]) == (
        "Without computation before the first decision: take Q-learning if a decision may take 1 "
        "ms or more. With 5 s or more of it: e-Greedy if a decision may take 1 ms or more."
    )


def test_of_several_winners_the_one_that_stays_longest_is_taken():
    steps = pd.DataFrame(
        {"bound": [1.0, 2.0, 3.0, 4.0], "algorithms": [["A"], ["B", "C"], ["C", "B"], ["C"]]}
    )
    assert _chain(steps) == [(1.0, "A"), (2.0, "C")]


def test_times_that_are_not_told_apart_do_not_change_the_choice():
    # the order of 109 and 110 ns is chance
    one, other = [1e-8, 2e-7, 3e-7, 3.01e-7, 1e-8], [1e-8, 2e-7, 3.01e-7, 3e-7, 1e-8]
    assert told(section_of(0.0, one)) == told(section_of(0.0, other))
    lists = [sorted(section_of(0.0, times).contest.times("online")) for times in (one, other)]
    assert lists[0] == lists[1] == [1e-8, 2e-7, 3e-7, 3e-7]
    spread = section_of(0.0, online_seconds_spread=[0.0, 1.5e-7, 0.0, 0.0, 0.0])
    assert sorted(spread.contest.times("online")) == [1e-8, 2e-7, 2e-7, 4e-7]


@pytest.mark.parametrize(
    "section",
    [section_of(np.nan), section_of(0.0, oracles=("Optimal", "Random", "e-Greedy"))],
    ids=["no times", "one algorithm"],
)
def test_nothing_is_said_where_there_is_no_choice(section):
    assert advice(section) == ()


def test_each_algorithm_named_is_a_winner_within_its_bounds():
    rng = np.random.default_rng(0)
    for _ in range(10):
        online = 10 ** rng.uniform(-6, -2, 5)
        offline = np.where(rng.random(5) < 0.5, 0, 10 ** rng.uniform(-2, 2, 5))
        section = section_of(offline, online)
        contest = section.choice
        for level, chain in _chains(contest):
            for bound in np.unique(contest.times("online")):
                taken = [name for begin, name in chain if begin <= bound]
                winners = contest.winners({"offline": level, "online": bound}).algorithms
                assert (taken[-1] in winners) if taken else not winners


def test_advice_agrees_with_the_first_line():
    """What is best or tied is named; where the reference is, nothing is worth its computation."""
    scores, returns = study()
    scores["online_seconds"] = 1e-3
    parts = sections.sections(scores, returns, ("Optimal",))
    lines = [plain(words) for words in summary(parts, MDPS).blocks[2].items]
    for section, line in zip(parts, lines, strict=True):
        best = section.champions[section.champions["best"] | section.champions["tied"]]
        assert all(name in line for name in best["algorithm"]), line
    returns = returns.assign(score=returns["unit"] * 1.0)  # all the same
    even = sections.sections(scores, returns, ("Optimal",))[0]
    assert plain(advice(even)).endswith(" Random is as good: none is worth its computation.")


def test_how_often_each_algorithm_is_among_the_best():
    scores, returns = study()
    parts = sections.sections(scores, returns, ("Optimal",))
    assert standing(parts) == "BEB in 2 of 2 experiments and e-Greedy in 2"
    assert standing([]) == ""


def blocks_of(*times, **options):
    return winners(section_of(*times, **options))


def texts(blocks):
    return [plain(block.words) for block in blocks if isinstance(block, Paragraph)]


def test_under_the_offline_bound_and_without_one():
    blocks = blocks_of([0.0, 0.0, 0.0, 2.0, 0.0])
    assert texts(blocks) == [
        (
            "With a bound on offline time just under the 2 s that BEB needs at least: (Random), "
            "(e-Greedy)."
        ),
        "With any offline time: (Random), (e-Greedy), (BEB, e-Greedy).",
    ]
    bounded, free = (b for b in blocks if isinstance(b, Table))
    assert [[cell.text for cell in row.cells] for row in free.rows] == [
        ["10 ns", "Random", ""],
        ["200 ns", "e-Greedy", ""],
        ["400 ns", "BEB", "e-Greedy"],
    ]
    assert [row.cells[1].text for row in bounded.rows] == ["Random", "e-Greedy"]
    assert bounded.id != free.id


def test_where_none_computes_offline_there_is_one_list():
    assert texts(blocks_of(0.0)) == [
        "As the bound on online time per decision is loosened: (Random), (e-Greedy), "
        "(BEB, e-Greedy)."
    ]


def test_agents_without_times_do_not_take_part():
    assert texts(blocks_of(0.0, [1e-8, 2e-7, np.nan, 4e-7, 1e-8])) == [
        "As the bound on online time per decision is loosened: (Random), (e-Greedy), (BEB)."
    ]
    assert blocks_of(np.nan) == []


def test_agents_that_cannot_be_paired_have_no_list():
    assert blocks_of(0.0, cut=1) == []


def test_brackets_are_found_by_the_digest_of_the_distribution():
    known = brackets.find("GC", *comparison.PUBLISHED)
    row = {"experiment": "GC", "published": 42.0, "published_ci95": 1.0}
    by_name = comparison.bayes_share(row, {})
    assert by_name.endswith("%")
    assert comparison.bayes_share(row, {"GC": known.digest}) == by_name
    assert comparison.bayes_share(row, {"GC": "of another distribution"}) == ""
    renamed = {**row, "experiment": "a name of its own"}
    assert comparison.bayes_share(renamed, {"a name of its own": known.digest}) == by_name
    assert comparison.bayes_share(renamed, {}) == ""


def test_an_only_agent_is_shown_with_the_parameters_that_the_study_sets():
    agents = [("BEB", {"beta": 2.0, "bonus": "pair"}), ("Random", {}), ("PSRL", {"period": 5})]
    named = {"BEB": ["beta"], "Random": []}
    (found,) = sections.sections(*study(agents=agents, experiments=[("GC",) * 3]), named=named)
    assert set(found.table["label"]) == {"BEB (β = 2)", "Random", "PSRL (period = 5)"}
