"""Marks of figures in the SVG, each under its id."""

import os
import re
from collections import Counter
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_hex
from scipy.stats import binom

import jbrl.report.chapters  # noqa: F401 (lists all figures)
from experiments import winner_panels
from jbrl.report import axes, bounds, figures, sections
from jbrl.report.axes import COLOURS, SYMBOLS, Drawing, styles
from jbrl.report.figures import FIGURES
from jbrl.report.html import inline
from jbrl.report.tables import winners
from tests import kept
from tests.report.synthetic import AGENTS, one_section, study

KINDS = {kind.id: kind for kind in FIGURES}
STYLES = styles(["Random", "e-Greedy", "BEB", "Optimal"], {"Optimal"})
# Offline 0, 1, 10, 100 s and online 1, 2, 3, 4 µs for Random, e-Greedy twice and BEB, the best;
# e-Greedy(0.1) ties with it.
BOUNDED = {
    "offline_seconds": [0.0, 1.0, 10.0, 100.0, 0.0],
    "online_seconds": [1e-6, 2e-6, 3e-6, 4e-6, 1e-6],
}


DRAWN = Counter()  # figures by test


def draw(kind, section, style=STYLES):
    """(SVG text, Drawing)"""
    drawing = KINDS[kind].draw(section, style)
    assert isinstance(drawing, Drawing), drawing
    text = inline(drawing.figure, f"{section.id}--{kind}", "label", drawing.titles)
    ElementTree.fromstring(text)  # well formed
    test = os.environ["PYTEST_CURRENT_TEST"].split("::")[1].split(" (")[0]
    DRAWN[test] += 1
    numbers = f"{drawing.note}\n{drawing.data.to_csv()}"
    kept.compare(f"{kind} {DRAWN[test]} of {test}", {"<svg": text, "numbers": numbers})
    return text, drawing


def reason(kind, section):
    """Why a figure is not drawn."""
    return KINDS[kind].draw(section, STYLES)


def places(drawing):
    """Places of the marks, by gid."""
    lines = drawing.figure.axes[0].lines
    return {k.get_gid(): k.get_xydata()[0] for k in lines if "mark" in (k.get_gid() or "")}


def marks(text):
    return sorted(int(k) for k in re.findall(r'id="gc--\w+-mark-(\d+)"', text))


def test_register():
    times, scores = ["online", "offline", "latency"], ["difference", "fraction", "distribution"]
    assert list(KINDS) == [*times, *scores, "ranks", "choice"]
    assert all(kind.title and kind.caption.endswith((".", ").")) for kind in FIGURES)


@pytest.mark.parametrize("kind", ["online", "offline"])
def test_score_against_time_has_every_competitor_and_the_reference(kind):
    text, drawing = draw(kind, one_section())
    assert marks(text) == [1, 2, 3, 4]
    assert f'id="gc--{kind}-reference-0"' in text
    assert "Optimal 80.00" in text
    assert drawing.note == ""
    assert "<title>BEB (β = 2.5, bonus = visits): 40.00 ± 3.83, " in text


def test_places_are_logarithms_and_heights_are_means():
    section = one_section(online_seconds=[1e-8, 1e-7, 1e-6, 1e-5, 1e-9])
    _, drawing = draw("online", section)
    for index, row in section.competitors.iterrows():
        expected = [np.log10(row["online_seconds"]), row["mean"]]
        assert places(drawing)[f"mark-{index}"] == pytest.approx(expected)
    labels = [t.get_text() for t in drawing.figure.axes[0].get_xticklabels()]
    assert labels == ["10 ns", "100 ns", "1 µs", "10 µs"]


def test_zero_times_stand_in_a_strip_of_their_own():
    section = one_section(offline_seconds=[0.0, 1.0, 10.0, 0.0, 0.0])
    text, drawing = draw("offline", section)
    assert marks(text) == [1, 2, 3, 4] and ">0</text>" in text
    lines = drawing.figure.axes[0].lines
    strip = next(line.get_xdata()[0] for line in lines if line.get_gid() == "strip")
    rows = section.competitors.reset_index().set_index("algorithm")["index"]
    random, beb = (places(drawing)[f"mark-{rows[name]}"][0] for name in ("Random", "BEB"))
    assert random < beb < strip < 0


def test_all_times_zero():
    text, drawing = draw("offline", one_section(offline_seconds=0.0))
    assert marks(text) == [1, 2, 3, 4]
    assert [t.get_text() for t in drawing.figure.axes[0].get_xticklabels()] == ["0"]
    assert "strip" not in text


def test_unknown_times_are_said_not_drawn():
    seconds = [1e-6, np.nan, np.inf, 1e-6, np.nan]
    text, drawing = draw("online", one_section(online_seconds=seconds))
    assert len(marks(text)) == 2
    said = "Not drawn, having no online time per decision: e-Greedy (ε = 0.1) and e-Greedy (ε = 0)."
    assert drawing.note == said
    nothing = one_section(online_seconds=np.nan)
    assert reason("online", nothing) == "no agent has a known online time per decision"


def test_a_crowd_loses_its_bars_but_not_its_symbols():
    agents = [("e-Greedy", {"epsilon": k / 100}) for k in range(51)]
    text, drawing = draw("online", one_section(n=3, agents=agents))
    assert len(marks(text)) == 51
    assert len(drawing.figure.axes[0].collections) == 1
    assert "only the best ones have bars" in drawing.note


def test_an_oracle_far_above_does_not_squeeze_the_rest():
    section = one_section()
    drawing = KINDS["online"].draw(section, STYLES)
    assert drawing.figure.axes[0].get_ylim()[1] < 50
    assert "(above the scale)" in inline(drawing.figure, "x", "")
    near = section.table.assign(mean=section.table["mean"].where(~section.table["oracle"], 44.0))
    text, drawing = draw("online", sections.dataclasses.replace(section, table=near))
    assert "(above the scale)" not in text
    assert drawing.figure.axes[0].get_ylim()[1] > 44


def test_difference_shows_the_test():
    text, drawing = draw("difference", one_section())
    assert marks(text) == [1, 2, 4]
    assert ", Z = 1.25, tied</title>" in text
    assert "+0.00, Z = 0.00, best</title>" in text
    # Hollow is worse: Random is filled with the ground of the page.
    lines = drawing.figure.axes[0].lines
    assert [k.get_gid() for k in lines if k.get_markerfacecolor() == "#fefefe"] == ["mark-4"]


def test_difference_needs_two_algorithms_and_a_test():
    alone = one_section(agents=[("Random", {})])
    assert reason("difference", alone) == "there is one algorithm only"
    assert reason("difference", one_section(cut=1)) == "no test was made"


def test_distribution_has_the_best_of_each_algorithm_and_the_oracle():
    text, _ = draw("distribution", one_section())
    assert marks(text) == [0, 1, 2, 4]
    assert ">Random</text>" in text
    assert "median 40.00" in text


def test_distribution_of_constant_and_of_no_returns():
    scores, returns = study(n=3, agents=[("Random", {})], experiments=[("GC", "GC", "GC")])
    scores = scores.assign(mean=0.0, std=0.0, ci95=0.0)
    [section] = sections.sections(scores, returns.assign(score=0.0))
    assert marks(draw("distribution", section)[0]) == [0]
    [section] = sections.sections(scores, returns.iloc[:0])
    assert reason("distribution", section) == "there are no returns"


@pytest.mark.parametrize("kind", list(KINDS))
def test_one_mdp(kind):
    section = one_section(n=1, offline_seconds=0.5, latency_seconds=0.1)
    if kind == "fraction":
        why = "Optimal is not significantly better than Random (Z = nan over 1 environments)"
        assert why in reason(kind, section)
    elif kind == "ranks":
        assert reason(kind, section) == "agents have played one environment only"
    else:
        text, _ = draw(kind, section)
        assert marks(text) or kind == "choice"  # which has areas in place of marks


def test_latency_is_drawn_where_it_was_measured():
    text, drawing = draw("latency", one_section(latency_seconds=[1e-4, 2e-4, np.nan, 4e-4, 5e-4]))
    assert len(marks(text)) == 3
    assert "Not drawn, having no latency: e-Greedy (ε = 0.1)." in drawing.note
    assert "`latency = true`" in reason("latency", one_section())
    # bounds are on latency where it is known of all: here in the other order than online times
    bounded = one_section(**BOUNDED, latency_seconds=[4e-4, 3e-4, 2e-4, 1e-4, 1e-4])
    assert bounded.contest.times("online").tolist() == [1e-4, 2e-4, 3e-4, 4e-4]
    # the processor seconds of decisions that were played at once are not those of a latency
    bounded = one_section(
        **BOUNDED, latency_seconds=[4e-4, 3e-4, 2e-4, 1e-4, 1e-4], online_processor_seconds=1e-7
    )
    assert bounded.contest.times("online").tolist() == [1e-4, 2e-4, 3e-4, 4e-4]
    assert "bound on latency" in draw("choice", bounded)[0]
    assert winners(bounded)[-1].columns[0].text == "Latency bound from"
    assert "bound on online time" in draw("choice", one_section(**BOUNDED))[0]


def test_fraction_of_the_optimum_starts_at_random_and_ends_at_the_oracle():
    section = one_section()
    text, drawing = draw("fraction", section)
    found = drawing.data.set_index("algorithm")
    # Over MDPs of mean 40: Random 30, Optimal 80, BEB 40.
    assert list(found["fraction"]) == pytest.approx([0.2, 0.196, 0.0], abs=1e-12)
    assert found.loc["Random", "ci95_fraction"] == pytest.approx(0, abs=1e-12)
    assert found.loc["BEB", "ci95_fraction"] > 0
    assert marks(text) == [1, 2, 4]
    ends = [line.get_xdata()[0] for line in drawing.figure.axes[0].lines]
    assert {0, 1} <= set(ends), "lines at Random and at Optimal"
    assert "fraction of the way from Random to Optimal" in text


def test_fraction_without_its_ends_is_refused_with_the_reason():
    assert reason("fraction", one_section(oracles=())) == "the experiment has no oracle"
    others = [agent for agent in AGENTS if agent[0] != "Random"]
    assert reason("fraction", one_section(agents=others)) == "the experiment has no Random"
    assert "were not played on the same environments" in reason("fraction", one_section(cut=1))
    scores, returns = study(experiments=[("GC", "GC", "GC")])
    same = returns.assign(score=returns["score"].where(returns["algorithm"] != "Optimal", 0.0))
    [section] = sections.sections(scores, same, ["Optimal"])
    assert "Optimal is not significantly better than Random" in reason("fraction", section)


def test_names_are_text_not_markup_nor_formulas():
    agents = [("$x_1$ <b>&\"'", {"alpha": 0.00123}), ("other", {})]
    section = one_section(agents=agents)
    text, _ = draw("distribution", section, styles([name for name, _ in agents]))
    assert "$x_1$ &lt;b&gt;&amp;" in text
    assert "0.00123" in text


def test_svg_is_small_and_takes_colours_and_font_from_the_page():
    text, _ = draw("online", one_section())
    assert len(text) < 15_000
    assert "font-family" not in text
    assert "http" not in text
    assert "var(--ink,#1b1f24)" in text
    assert f"var(--s1,{COLOURS[1]})" in text
    assert "#000000" not in text
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert all(id.startswith("gc--online") for id in ids)
    assert len(set(ids)) == len(ids)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]*)', text))
    assert used <= set(ids)


def test_styles_of_many_elements_are_written_once():
    agents = [("e-Greedy", {"epsilon": k / 100}) for k in range(40)]
    text, _ = draw("online", one_section(n=3, agents=agents))
    rules = re.search(r"<style>(.*?)</style>", text).group(1)
    assert all(rule.startswith("#gc--online .k") for rule in rules.split("}") if rule)
    classes = set(re.findall(r"\.(k\d+)\{", rules))
    assert classes == set(re.findall(r'class="(k\d+)"', text))
    left = re.findall(r'style="([^"]*)"', text)
    assert max(map(left.count, left)) < 8
    assert not re.search(r'<[^>]*class="[^>]*class="', text)


def test_styles_differ_in_symbol_and_colour():
    names = [f"a{i}" for i in range(60)]
    found = styles([*names, "oracle"], {"oracle"})
    assert len({(s.colour, s.marker) for s in found.values()}) == 61
    assert [found[n].marker for n in names[:12]] == list(SYMBOLS)
    assert found["oracle"].marker not in SYMBOLS
    # An oracle takes no competitor's place.
    assert styles(["oracle", "a0"], {"oracle"})["a0"] == found["a0"]
    assert re.fullmatch(r"(?:[MLQC][-\d. ]+|Z)+", found["a0"].outline.replace("-0.00", "0.00"))


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (5e-9, 2e-6, [1e-8, 1e-7, 1e-6]),
        (1e-3, 1.1e-2, [1e-3, 2e-3, 5e-3, 1e-2]),
        (5.0, 4000.0, [10, 60, 600, 3600]),
        (20.0, 300.0, [20, 60, 120, 300]),
    ],
)
def test_time_ticks(low, high, ticks):
    assert axes._time_ticks(low, high) == pytest.approx(ticks)


def test_panels_show_where_each_algorithm_wins_or_is_tied():
    drawing = winner_panels.best_under_bounds(one_section(**BOUNDED), STYLES)
    panels = {p.get_title(loc="left"): p for p in drawing.figure.axes if p.get_visible()}
    assert list(panels) == ["Random", "e-Greedy", "BEB"]
    light, whole = (
        {name: sum(map(area, p.collections[k].get_paths())) for name, p in panels.items()}
        for k in (0, 1)
    )
    assert all(v > 0 for v in whole.values())
    assert light["Random"] == light["BEB"] == 0 < light["e-Greedy"]
    assert light["e-Greedy"] == pytest.approx(whole["BEB"])  # tied wherever BEB is admitted
    assert whole["e-Greedy"] > whole["BEB"]


def test_the_composite_map_shows_the_best_and_stripes_ties():
    section = one_section(**BOUNDED)
    text, drawing = draw("choice", section)
    assert 'fill="#' not in text  # patterns take part in the dark mode
    [panel] = drawing.figure.axes
    found = {
        (to_hex(c.get_facecolor()[0]), bool(c.get_hatch())): sum(map(area, c.get_paths()))
        for c in panel.collections
    }
    colours = {name: STYLES[name].colour for name in ("Random", "e-Greedy", "BEB")}
    assert set(found) == {
        (colours["Random"], False),
        (colours["e-Greedy"], False),
        (colours["BEB"], True),  # e-Greedy(0.1) is tied with it wherever it is admitted
    }
    assert sum(found.values()) < np.prod([np.ptp(panel.get_xlim()), np.ptp(panel.get_ylim())])
    [striped] = (c for c in panel.collections if c.get_hatch())
    assert to_hex(striped.get_edgecolor()[0]) == colours["e-Greedy"]
    symbols = {line.get_marker() for line in panel.lines}
    assert symbols == {STYLES[name].marker for name in colours}
    legend = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
    assert legend == ["Random", "e-Greedy", "BEB"]


def test_without_offline_times_the_composite_map_is_a_strip():
    _, drawing = draw("choice", one_section(offline_seconds=2e-4))  # the dispatch of a call
    [panel] = drawing.figure.axes
    assert list(panel.get_yticks()) == []
    assert drawing.figure.get_figheight() < 2
    assert list(drawing.data["winners"]) == ["", "Random", "e-Greedy", "BEB; e-Greedy"]


def area(path):
    """Of a rectangle."""
    (x0, y0), (x1, y1) = path.vertices.min(0), path.vertices.max(0)
    return (x1 - x0) * (y1 - y0)


def test_few_rectangles_cover_exactly_the_cells():
    cells = np.random.default_rng(0).random((9, 7)) < 0.6
    found = bounds.rectangles(cells, np.arange(8.0), np.arange(10.0))
    covered = np.zeros_like(cells, int)
    for corners in found:
        (x0, y0), (x1, y1) = corners.min(0).astype(int), corners.max(0).astype(int)
        covered[y0:y1, x0:x1] += 1
    np.testing.assert_array_equal(covered, cells)
    assert len(bounds.rectangles(np.ones((9, 7), bool), np.arange(8.0), np.arange(10.0))) == 1


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"online_seconds": np.nan}, "fewer than two algorithms have known times"),
        (
            {"offline_seconds": [0.0, np.nan, np.nan, np.nan, 1.0]},
            "fewer than two algorithms have known times",
        ),
    ],
)
def test_without_times_to_tell_apart_there_is_no_map(columns, expected):
    assert reason("choice", one_section(**columns)).startswith(expected)


def test_the_map_leaves_out_whose_times_are_not_known():
    _, drawing = draw("choice", one_section(offline_seconds=[0.0, 1.0, np.nan, 2.0, 0.0]))
    assert "Left out, having no known times: e-Greedy (ε = 0" in drawing.note


def test_times_measured_on_something_else_are_on_no_axis():
    devices = ["cpu x 2", "cpu x 2", "cpu x 2, quick programs", "cpu x 2", "cpu x 2"]
    section = one_section(offline_seconds=[0.0, 1.0, 2.0, 3.0, 0.0], device=devices)
    assert section.device == "cpu x 2" and len(section.timed) == 3
    (other,) = set(section.competitors["label"]) - set(section.timed["label"])
    said = f"Left out, since times are compared that were measured on cpu x 2 only: {other}."
    for name in ("online", "offline", "choice"):
        assert draw(name, section)[1].note == said


def test_data_of_the_map_covers_every_bound_once():
    _, drawing = draw("choice", one_section(offline_seconds=[0.0, 1.0, 2.0, 3.0, 0.0]))
    data = drawing.data
    assert data["offline_bound"].nunique() == bounds.POINTS
    assert (data["online_bound_from"] <= data["online_bound_to"]).all()
    for _, rows in data.groupby("offline_bound"):
        starts, ends = rows["online_bound_from"].to_numpy(), rows["online_bound_to"].to_numpy()
        assert (starts[1:] > ends[:-1]).all()
        assert (rows["winners"] != rows["winners"].shift()).all()


def test_ranks_under_resampling_are_shares_with_squares_of_their_area():
    # BEB - e-Greedy(0.1) is 1.2 on 20 of 40 MDPs and -0.8 on the others: BEB is first where 17 of
    # 40 draws, or 16 and a tie, are of the former. Random is worse on each MDP.
    text, drawing = draw("ranks", one_section())
    assert marks(text) == [0, 1, 2]
    shares = drawing.data.pivot(index="algorithm", columns="rank", values="share").fillna(0)
    assert shares.sum(axis=1).to_numpy() == pytest.approx(1)
    # 0.02 are 6 standard errors
    assert binom.sf(16, 40, 0.5) - 0.02 < shares.loc["BEB", 1] < binom.sf(15, 40, 0.5) + 0.02
    assert shares.loc["Random", 3] == 1
    [random] = drawing.figure.axes[0].collections[4].get_paths()
    assert area(random) == pytest.approx(0.86**2)
    assert "first in 0%" in drawing.titles["mark-2"]


def test_no_share_is_rounded_to_none_or_all():
    shares = (0.0, 0.0099, 0.01, 0.5, 0.99, 0.9901, 0.9996, 1.0)
    texts = ["0%", "< 1%", "1%", "50%", "99%", "> 99%", "> 99%", "100%"]
    assert [figures._share(share) for share in shares] == texts


def test_ranks_of_other_mdps_are_not_drawn():
    assert "were not played on the same environments" in reason("ranks", one_section(cut=1))


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("difference", 13),
        pytest.param("difference", 2, marks=pytest.mark.slow),
        ("distribution", 2),
        pytest.param("distribution", 13, marks=pytest.mark.slow),
    ],
)
def test_names_of_rows_overlap_neither_each_other_nor_the_axis(kind, number):
    parameters = {f"parameter number {k}": k for k in range(4)}
    agents = [
        (f"algorithm {k}", parameters if k in (0, number - 2, number - 1) else {})
        for k in range(number)
    ]
    section = one_section(n=3, agents=agents)
    _, drawing = draw(kind, section, styles([name for name, _ in agents]))
    drawing.figure.canvas.draw()
    panel = drawing.figure.axes[0]
    boxes = [label.get_window_extent() for label in panel.get_yticklabels()]
    gaps = [one.y0 - other.y1 for one, other in pairwise(boxes)]
    assert min(gaps) >= 4 / 72 * drawing.figure.dpi  # points
    assert boxes[-1].y0 >= panel.get_window_extent().y0
    assert boxes[0].y1 <= drawing.figure.bbox.y1


def test_each_algorithm_of_the_house_study_has_a_colour_of_its_own():
    assert len(set(COLOURS)) == len(COLOURS) >= 13
    looks = styles([f"a{k}" for k in range(13)])
    assert len({look.colour for look in looks.values()}) == 13
    lightness = np.array([_lab(colour) for colour in COLOURS])
    apart = np.linalg.norm(lightness[:, None] - lightness[None], axis=-1)
    assert apart[np.triu_indices(len(COLOURS), 1)].min() > 18  # CIE 1976; 2.3 is just noticeable


def _lab(colour):
    """CIE L*a*b* of an sRGB colour."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    rgb = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    matrix = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(matrix) @ rgb / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return [116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])]
