"""The price of a wrong prior: the share of its value that an agent keeps, by how wrong it is, and
the chapter of curves about it.
"""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jbrl.base.schema import RETURNS
from jbrl.report import content as doc
from jbrl.report.axes import DASHED, INK, WIDTH, Drawing, Styles, drawn, legend, line_look
from jbrl.report.sections import BASELINE, Section
from jbrl.stats.table import check_returns, factor95, samples

PRIOR = re.compile(r'wrong\((?P<of>.+?),kind="(?P<kind>\w+)",degree=(?P<degree>[^,)]+).*\)')
COLUMNS = ("test", "kind", "degree", "algorithm", "parameters", "n", "right", "share", "ci95")
TITLE = "What a wrong prior costs"
INTRODUCTION = (
    "Problems stay, what agents are told becomes wrong, by degrees: 0 is the right prior, and the "
    "uniform prior of degree 1 is the inaccurate case of Castronovo et al. 2016."
)
CAPTION = (
    "Score with a wrong prior, as a share of the score of the same agent with the right one, on "
    "the same problems, with 95% intervals, against the degree. Of each algorithm the agent that "
    "is best with the right prior."
)


def chapters(parts: Sequence[Section], styles: Styles) -> list[doc.Chapter]:
    """Return the chapter, none where no experiment has a wrong prior of some degree."""
    told = [part for part in parts if wrongness(part.prior, part.test)]
    if not any("degree=" in part.prior for part in told):
        return []
    played = [part.returns.assign(prior=part.prior, test=part.test) for part in told]
    table = best(kept(pd.concat(played, ignore_index=True)))
    if table.empty:
        return []
    plot = doc.Plot("Wrong--share", TITLE, CAPTION, curves(table, styles))
    return [doc.Chapter("Wrong", TITLE, (doc.Paragraph((INTRODUCTION,)), plot))]


def best(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the agent of each algorithm and test that is best with the right prior."""
    table = table[table["share"].notna() & (table["algorithm"] != BASELINE)]
    greatest = table.groupby(["test", "algorithm"])["right"].transform("max")
    first = table[table["right"] == greatest].drop_duplicates(["test", "algorithm"])
    return table.merge(first[["test", "algorithm", "parameters"]])


@drawn
def curves(table: pd.DataFrame, styles: Styles) -> Drawing:
    """Draw a row of panels for each test distribution, a panel for each kind of wrong prior.

    Args:
      table: rows of `best`; a column `bound` holds shares that a theorem grants, where known.
    """
    tests, kinds = (list(dict.fromkeys(table[name])) for name in ("test", "kind"))
    names = [name for name in styles if name in set(table["algorithm"])]
    size = (1.3 * WIDTH, 0.7 + 1.75 * len(tests))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(tests), len(kinds), squeeze=False, sharey="row")
    for row, test in zip(panels, tests, strict=True):
        for panel, kind in zip(row, kinds, strict=True):
            own = table[(table["test"] == test) & (table["kind"] == kind)]
            _panel(panel, own, names, styles)
            panel.set_title(f"{test}, {kind}", fontsize=8.6, loc="left", pad=3)
    figure.supxlabel("degree", fontsize=9.6), figure.supylabel("share kept", fontsize=9.6)
    engine = figure.get_layout_engine()
    top = legend(figure, names, styles, lines=True)
    if engine is not None:
        engine.set(rect=(0, 0, 1, top))  # type: ignore[call-arg]
    return Drawing(figure, table, wide=True)


def _panel(axes: Axes, rows: pd.DataFrame, names: Sequence[str], styles: Styles) -> None:
    """Draw the lines of a panel; degrees stand side by side, whatever their distance."""
    degrees = sorted(set(rows["degree"]))
    for k, name in enumerate(names):
        own = rows[rows["algorithm"] == name]
        x = np.searchsorted(degrees, own["degree"]) + 0.08 * (k - (len(names) - 1) / 2)
        look = line_look(styles[name], k) | {"linewidth": 1.0, "markersize": 3.5}
        axes.errorbar(x, own["share"], own["ci95"], elinewidth=0.8, **look)
    if "bound" in rows:
        granted = rows.groupby("degree")["bound"].max()
        axes.plot(range(len(degrees)), granted[degrees], color=INK, linestyle=DASHED, linewidth=0.9)
    axes.axhline(1, color=INK, linewidth=0.5)
    axes.set_xticks(range(len(degrees)), [f"{d:g}" for d in degrees], fontsize=7, rotation=45)
    axes.tick_params(axis="y", labelsize=8)
    axes.grid(axis="y")


def wrongness(prior: str, test: str) -> tuple[str, float] | None:
    """Return the kind and the degree of a prior, ("", 0) of the right one, None of any other.

    The uniform prior is that of degree 1.
    """
    if prior == test:
        return "", 0.0
    if prior in (f"U{test}", f"uniform({test})"):
        return "uniform", 1.0
    found = PRIOR.fullmatch(prior)
    return (found["kind"], float(found["degree"])) if found and found["of"] == test else None


def kept(returns: pd.DataFrame) -> pd.DataFrame:
    """Return the share of the score with the right prior that agents keep with a wrong one.

    Args:
      returns: a score table with the columns `prior` and `test`.

    Returns:
      Columns `COLUMNS`, with a row of degree 0 for each kind: `n` environments that an agent has
      played with both priors, `right` its mean score with the right one, `share` the ratio of the
      means and `ci95` the half-width of its 95% interval, by the linear expansion of a ratio of
      paired means; NaN where `right` is not positive. Agents that have not played with the right
      prior are left out.

    Raises:
      JbrlError: a column is missing, or a score is not finite.
    """
    returns = check_returns(returns, (*RETURNS, "prior", "test"))
    told = returns.drop_duplicates("experiment").set_index("experiment")
    wrong = {name: wrongness(*map(str, row)) for name, row in told[["prior", "test"]].iterrows()}
    played: dict[tuple[str, ...], dict[tuple[str, float], pd.Series]] = {}
    for (experiment, *who), scores in samples(returns).items():
        if point := wrong[experiment]:
            played.setdefault((told.loc[experiment, "test"], *who), {})[point] = scores
    rows = []
    for (test, *who), by_point in played.items():
        right = next((scores for point, scores in by_point.items() if point[1] == 0), None)
        for kind in dict.fromkeys(kind for kind, _ in by_point if kind and right is not None):
            points = {d: scores for (of, d), scores in by_point.items() if of == kind}
            for degree, scores in sorted(({0.0: right} | points).items()):
                rows.append((test, kind, degree, *who, *_ratio(scores, right)))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _ratio(scores: pd.Series, right: pd.Series) -> tuple[int, float, float, float]:
    """Return n, the mean with the right prior, the share and its interval."""
    both = pd.concat([scores, right], axis=1, join="inner").to_numpy(np.float64)
    n, mean = len(both), float(both[:, 1].mean()) if len(both) else np.nan
    if not mean > 0:
        return n, mean, np.nan, np.nan
    share = float(both[:, 0].mean()) / mean
    spread = (both[:, 0] - share * both[:, 1]).std(ddof=1) if n > 1 else np.nan
    return n, mean, share, float(factor95(n) * spread / np.sqrt(n) / mean)
