"""Words of a report of environments other than Dirichlet MDPs, and of a report of both kinds, which
uses for each the right words.
"""

import pytest

from jbrl.report import sections, tables
from jbrl.report.axes import styles
from jbrl.report.chapters import document, write_report
from jbrl.report.content import Facts, Items, Paragraph, Plot, Table
from jbrl.report.figures import FIGURES
from jbrl.report.text import EPISODES, MDPS, OTHERS, Rules, rules_of, shared
from tests import kept
from tests.report.synthetic import CHAIN, EPISODIC, GC, LEARNERS, MANIFEST, MIXED, SEA, study
from tests.report.synthetic import plain as text
from tests.report.test_chapters import blocks, chapter, strings

WHOLE = study(experiments=(CHAIN, SEA), agents=LEARNERS)
BOTH = study(experiments=(("GC", "GC", "GC"), CHAIN, SEA))
PAIR = (("Random", {}), ("BEB", {"beta": 2.5}))  # where any agents will do
KINDS = {kind.id: kind for kind in FIGURES}
# words about finite MDPs
FINITE = ("MDP", "discounted return", "trajectory", "prior", "Trained on")


def report_of(whole, manifest, oracles=()):
    parts = sections.sections(*whole, oracles, rules_of(manifest))
    return document(parts, styles(whole[0]["algorithm"], oracles), manifest)


@pytest.fixture(scope="module")
def report():
    return report_of(WHOLE, EPISODIC)


@pytest.fixture(scope="module")
def mixed():
    return report_of(BOTH, MIXED, ["Optimal"])


def overview(report):
    """The table of the summary."""
    return blocks(report, Table, "Summary")[0]


def intro(report):
    """Words of the paragraph before it."""
    before = chapter(report, "Summary").blocks
    return before[before.index(overview(report)) - 1].words


def setup(report, id):
    return next(text(b.words) for b in blocks(report, Paragraph, id) if b.role == "setup")


def test_templates():
    said = MDPS.say("{Mean} over the {environments}, {figures} 7.")
    assert said == "Mean discounted return over the MDPs, Figs 7."
    said = EPISODES.say("{Scores} {environment} by {environment}")
    assert said == "Mean returns per episode environment by environment"
    adapted = EPISODES.adapt("3 MDPs, an MDP, MDPlanner")
    assert adapted == "3 environments, an environment, MDPlanner"
    assert MDPS.adapt("3 MDPs") == "3 MDPs"
    for terms in (MDPS, EPISODES, OTHERS):
        assert not any("{" in terms.say(kind.caption) for kind in FIGURES)


def test_rules_are_those_of_the_manifest():
    assert rules_of(EPISODIC)["Deep sea"] == Rules("mean return per episode", "500 steps")
    assert [rules.terms for rules in rules_of(MIXED).values()] == [MDPS, EPISODES, EPISODES]
    for experiments in (None, [{"name": "GC", "test": "GC"}]):
        assert rules_of({}) == rules_of({"experiments": experiments}) == {}
    assert Rules().terms is MDPS and Rules("log of the regret").terms is OTHERS
    assert shared([MDPS, MDPS]) is MDPS and shared([MDPS, EPISODES]) is OTHERS


def test_nothing_is_said_of_finite_mdps_where_there_are_none(report):
    texts = [*strings((report.chapters, report.facts, report.kind))]
    for plot in blocks(report, Plot):
        texts += (plot.title, plot.caption, plot.drawing.note)
    assert not [s for s in texts if any(word in s.replace("discounted.", "") for word in FINITE)]
    assert report.kind == "Reinforcement learning benchmark"
    counts = ("2 experiments", "4 agents of 3 algorithms", "40 environments each", "seed 0")
    assert report.facts == counts


def test_what_an_experiment_is_stands_in_its_chapter_and_below_its_name(report):
    for id, played in (
        ("chain-10d", "Chain-10d, 100 episodes in each"),
        ("deep-sea", "DeepSea(size=5), 500 steps in each"),
    ):
        said = f"Played in environments drawn from {played}. Score: mean return per episode."
        assert setup(report, id) == said
    assert text(intro(report)).startswith(
        "Mean return per episode of the best agent of each algorithm, ± 95% interval."
    )
    below = [c.small for c in overview(report).columns[1:]]
    assert below == ["100 episodes", "DeepSea(size=5), 500 steps"]
    assert text(chapter(report, "Summary").blocks[-1].words).endswith(
        "not significantly worse (paired Z-test on the same environments, one-sided, 95%)"
    )
    [agents] = [t for t in blocks(report, Table) if t.id == "chain-10d--agents"]
    assert {c.text: c.hint for c in agents.columns}["N"] == "environments"
    [facts] = (f for f in blocks(report, Facts) if f.title == "Study")
    assert ("environments", "40") in facts.lines


def test_axes_say_what_the_score_is():
    section = sections.sections(*WHOLE, (), rules_of(EPISODIC))[0]
    looks = styles(WHOLE[0]["algorithm"])
    panels = [KINDS[k].draw(section, looks).figure.axes[0] for k in ("online", "distribution")]
    assert panels[0].get_ylabel() == panels[1].get_xlabel() == "mean return per episode"
    # there is no oracle, and nobody would expect one
    assert KINDS["fraction"].draw(section, looks) == ""


def test_long_numbers_leave_place_for_the_label():
    scores, returns = study(experiments=(CHAIN,), agents=LEARNERS)
    small = sections.sections(scores.assign(mean=scores["mean"] * -1e-5, ci95=1e-5), returns)[0]
    looks = styles(scores["algorithm"])
    margins = [
        KINDS["online"].draw(section, looks).figure.subplotpars.left
        for section in (sections.sections(scores, returns)[0], small)
    ]
    assert margins[0] == 0.1 and 0.13 < margins[1] < 0.2


def test_lifetimes_of_one_length_stand_in_the_heading():
    whole = study(experiments=(CHAIN,), agents=PAIR[:1])
    assert "lifetimes of 100 episodes" in report_of(whole, EPISODIC).facts
    whole = study(experiments=(("GC", "GC", "GC"),), agents=PAIR[:1])
    assert "250 decisions" in report_of(whole, MIXED).facts
    # the experiment's own horizon, not the study's
    longer = MANIFEST | {"experiments": [GC | {"lifetime": "1,000 steps"}]}
    assert "1,000 decisions" in report_of(whole, longer).facts


def test_mdps_of_several_horizons_say_so():
    manifest = MANIFEST | {
        "experiments": [GC, GC | {"name": "GC, inaccurate", "prior": "UGC", "lifetime": "20 steps"}]
    }
    report = report_of(study(agents=PAIR), manifest)
    said = "inaccurate prior Trained on UGC, played on MDPs drawn from GC, 20 steps on each."
    assert setup(report, "gc-inaccurate") == said
    assert not [fact for fact in report.facts if "decisions" in fact]
    assert overview(report).columns[1].small == "prior GC → test GC, 250 steps"


def test_another_prior_is_told():
    slippery = (("Chain", "Chain-10s", "Chain-10d"),)
    chain = EPISODIC["experiments"][0] | {"name": "Chain"}
    report = report_of(study(experiments=slippery, agents=PAIR), {"experiments": [chain]})
    said = (
        "inaccurate prior Trained on Chain-10s, played in environments drawn from Chain-10d, 100 "
        "episodes in each."
    )
    assert setup(report, "chain") == f"{said} Score: mean return per episode."
    assert overview(report).columns[1].small == "prior Chain-10s → test Chain-10d, 100 episodes"


@pytest.mark.slow
def test_of_both_kinds_each_is_said_what_is_right_for_it(mixed):
    counts = ("3 experiments", "5 agents of 4 algorithms", "40 environments each", "seed 0")
    assert mixed.facts == counts
    assert text(intro(mixed)).startswith("Mean score of the best agent")
    assert [c.small for c in overview(mixed).columns[1:]] == [
        "prior GC → test GC, 250 steps, discounted return",
        "100 episodes, mean return per episode",
        "DeepSea(size=5), 500 steps, mean return per episode",
    ]
    said = "accurate prior Trained on GC, played on MDPs drawn from GC, 250 steps on each."
    assert setup(mixed, "gc") == said
    captions = {plot.id: plot.caption for plot in blocks(mixed, Plot)}
    assert "Mean over the MDPs" in captions["gc--difference"]
    assert "Mean over the environments" in captions["chain-10d--difference"]
    items = [text(words) for words in blocks(mixed, Items, "Reading")[0].items]
    assert items[0].startswith("Score, mean discounted return. Mean over N MDPs")
    assert items[1].startswith("Score, mean return per episode. Mean over N environments")
    assert "Jordan" in items[-1] and "Castronovo" in items[-2]


def test_an_oracle_sees_the_environment(mixed):
    agents = (*PAIR, ("Optimal", {}))
    alone = report_of(study(experiments=(CHAIN,), agents=agents), EPISODIC, ["Optimal"])
    finite = report_of(study(agents=agents), MANIFEST, ["Optimal"])
    for report, seen in ((alone, "environment"), (mixed, "environment"), (finite, "MDP")):
        assert overview(report).rows[-1].cells[0].small == f"sees the true {seen}"


def test_tables_beside_the_page_say_it_too():
    parts = sections.sections(*BOTH, ["Optimal"], rules_of(MIXED))
    assert [list(tables._scores_markdown(part))[1] for part in parts] == [
        "Prior GC, test GC.",
        "Chain-10d, 100 episodes.",
        "DeepSea(size=5), 500 steps.",
    ]


def test_pages_say_it_too(tmp_path):
    whole = study(experiments=(CHAIN,), agents=LEARNERS)
    page = write_report(*whole, EPISODIC, tmp_path).read_text(encoding="utf-8")
    kept.compare_page("episodes", page)
    assert "100 episodes in each" in page and "MDP" not in page
