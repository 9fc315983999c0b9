"""Keep the scores of experiments/paper-cpu.toml, draw the figures of docs/published-comparison.md
and write its tables into it.

python experiments/paper_cpu.py [DIR] [--add]

DIR holds the results of the study: they are archived in experiments/published/paper-cpu, or, with
--add, added to what is kept there: results of the same study with `--only` some of its units.
Without DIR, what is kept is drawn and written again; a test sees to it that the page says what the
scores say.
"""

import argparse
import io
import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import jbrl  # noqa: E402
from experiments import castronovo2016 as whole  # noqa: E402
from jbrl.comparison import read  # noqa: E402
from jbrl.report import bounds, comparison_figures, figures  # noqa: E402
from jbrl.report.comparison_page import PUBLISHED  # noqa: E402
from jbrl.report.style import LOOK, styles  # noqa: E402
from jbrl.report.tables import Section, sections  # noqa: E402
from jbrl.report.text import parameters_text, score_text, seconds_text, varied  # noqa: E402
from jbrl.stats import brackets  # noqa: E402
from jbrl.stats.published import castronovo2016 as published  # noqa: E402
from jbrl.stats.published.castronovo2016 import DEFECT, MISPRINT, OTHER, SAME  # noqa: E402
from jbrl.stats.two_studies import Comparison  # noqa: E402

KEPT = ROOT / "experiments" / "published" / "paper-cpu"
OTHERS = ROOT / "experiments" / "published" / "paper-cells"  # of experiments/paper-cells.toml
PAGE = ROOT / "docs" / "published-comparison.md"
STATIC = ROOT / "docs" / "_static"
FACTOR95 = 1.96  # standard errors
SMALLER = "\u00a0¹"  # marks a budget below the printed one
SEARCHES = ("BAMCP", "BFS3", "SBOSS")
DECIMALS = 3  # of the returns that are kept
ALGORITHMS = tuple(dict.fromkeys(published.cells()["algorithm"]))
TRAINED = ("ANN", "BeliefPPO", "RL2")
PROGRAM = ("Soft-max-published", "SBOSS-published", "BEB-published")
DOTS = 110  # per inch
# tables of an archive, and the columns by which a row belongs to a unit
UNIT = {
    "units": ("experiment", "algorithm", "parameters", "seed"),
    "returns": ("experiment", "algorithm", "parameters", "seed"),
    "strategies": ("prior", "algorithm", "parameters", "seed"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "folder", nargs="?", type=Path, help="results of the study (default: those that are kept)"
    )
    parser.add_argument("--add", action="store_true", help="keep what is there")
    chosen = parser.parse_args()
    if chosen.folder and chosen.add:
        add(chosen.folder)
    elif chosen.folder:
        jbrl.Results(chosen.folder).archive(KEPT, decimals=DECIMALS)
    results = jbrl.Results(KEPT)
    found = jbrl.compare(KEPT)
    PAGE.write_text(
        filled(PAGE.read_text(encoding="utf-8"), blocks(results, found)), encoding="utf-8"
    )
    for name, image in drawn(results, found).items():
        image.save(STATIC / name, optimize=True)
    print(found.note)


def add(folder: Path, kept: Path = KEPT) -> None:
    """Add results to an archive. Units that it has are replaced.

    `study.json` lists under "added" which units they are, with versions and machine.
    """
    with tempfile.TemporaryDirectory() as place:
        more = Path(place)
        jbrl.Results(folder).archive(more, decimals=DECIMALS)
        old, new = (json.loads((one / "study.json").read_text()) for one in (kept, more))
        units = pd.read_parquet(more / "units.parquet")["algorithm"].value_counts(sort=False)
        for name, columns in UNIT.items():
            if (table := more / f"{name}.parquet").is_file():
                joined = replaced(kept / table.name, table, columns)
                joined.to_parquet(kept / table.name, compression="zstd", index=False)
    part = {"units": units.to_dict(), "versions": new["versions"], "machine": new["machine"]}
    listed = {
        name: old[name] + [entry for entry in new[name] if entry not in old[name]]
        for name in ("experiments", "agents")
    }
    whole = {**old, **listed, "added": [*old.get("added", ()), part]}
    (kept / "study.json").write_text(json.dumps(whole, indent=1) + "\n")


def replaced(old: Path, new: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows of two Parquet files; of units that both have, those of the new file.

    Args:
      columns: that say which unit a row belongs to.
    """
    rows = pd.read_parquet(new)
    if not old.is_file():
        return rows
    units = rows[list(columns)].drop_duplicates()
    rest = pd.read_parquet(old).merge(units, how="left", indicator="known")
    rest = rest[rest.pop("known") == "left_only"]
    return pd.concat([rest, rows], ignore_index=True)


def filled(page: str, contents: Mapping[str, str]) -> str:
    """Return the page with the text between `<!-- NAME -->` and `<!-- end NAME -->` replaced, for
    each name.
    """
    for name, content in contents.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)"
        page, count = re.subn(
            pattern, lambda m, text=content: f"{m[1]}\n{text}\n{m[2]}", page, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"{PAGE}: expected <!-- {name} --> once, found it {count} times")
    return page


def blocks(results: jbrl.Results, found: Comparison) -> dict[str, str]:
    """Return the tables of the page, by name."""
    side = read(KEPT)
    scores = side.played
    told = [found.note, *whole.facts(found, side)]
    return {
        "outcome": outcome(told[:2]),
        "deviations": items(told[2:]),
        "others": others(found, jbrl.compare(OTHERS)),
        "cells": cells(found),
        "why": why(found.table),
        "winners": winners(whole.in_words(whole.winners(scores, side.returns))),
        "best": best(results),
        "soft-max": ranks(scores, "Soft-max"),
        "sboss": ranks(scores, "SBOSS"),
        "beb": ranks(scores, "BEB"),
        "formula": formulas(scores),
        "budget": budgets(scores, results.units),
        "trained": trained(results),
    }


def outcome(lines: Sequence[str]) -> str:
    """State how many cells agree in which way, and the distance of the study as a whole from the
    published one.
    """
    return f"**{' '.join(f'{line}.' for line in lines)}**\n"


def items(lines: Sequence[str]) -> str:
    """Write a list of sentences in Markdown."""
    return "".join(f"- {line[0].upper()}{line[1:]}.\n" for line in lines)


def others(found: Comparison, more: Comparison) -> str:
    """Return the cells that are beyond 1.96 standard errors in either study, and those of the
    searches, beside the same cells on other MDPs; and the deviations there.
    """
    keys = ["case", "experiment", "algorithm"]
    both = found.table.merge(more.table, on=keys, suffixes=("", "_more"))
    far = (both[["apart", "apart_more"]].abs() > FACTOR95).any(axis=1)
    shown = both[(far | both["algorithm"].isin(SEARCHES)) & both["apart_more"].notna()]
    rows = [
        [
            f"{cell['experiment']}, {cell['case']}",
            cell["algorithm"],
            score(cell["published"], cell["published_ci95"]),
            score(cell["mean"], cell["ci95"])
            + (SMALLER if "instead of" in cell["explanation"] else ""),
            apart_text(cell["apart"]),
            f"{cell['n_more']:,}",
            score(cell["mean_more"], cell["ci95_more"]),
            apart_text(cell["apart_more"]),
        ]
        for cell in shown.to_dict("records")
    ]
    header = ["pair", "algorithm", "paper", "500 MDPs", "apart", "other MDPs", "score", "apart"]
    told = items([more.note, *whole.facts(more, read(OTHERS))])
    return f"{table(header, rows, numbers=range(2, 8))}\n{told}"


def apart_text(apart: float) -> str:
    """Write a difference in combined standard errors."""
    return f"{apart:+.1f}".replace("-", "−")


def cells(found: Comparison) -> str:
    """Return the 48 cells in the ways they were played, a table for each pair of distributions; the
    way that decides is bold.
    """
    ways = {
        key: rows.set_index("way")
        for key, rows in found.candidates.groupby(list(published.CELL), sort=False)
    }
    header = [
        "algorithm",
        "verdict",
        "paper",
        "as described",
        "as published",
        "share",
        "difference of allowed",
        "apart",
    ]
    texts = []
    for (case, experiment), mine in found.table.groupby(["case", "experiment"], sort=False):
        rows = [
            _cell(cell, ways.get((case, experiment, cell["algorithm"])), found.digests)
            for cell in mine.to_dict("records")
        ]
        texts.append(
            f"**{experiment}, {case} prior**\n\n" + table(header, rows, numbers=range(2, 8))
        )
    return "\n".join(texts)


def _cell(
    cell: Mapping[str, Any], ways: pd.DataFrame | None, digests: Mapping[str, str]
) -> list[str]:
    who = (
        f"{cell['algorithm']}<br>`{cell['printed']}`".replace("|", "\\|")
        if cell["printed"]
        else cell["algorithm"]
    )
    texts = {way: _way(ways, way, cell) for way in (SAME, OTHER, DEFECT, MISPRINT)}
    smaller = SMALLER if texts[OTHER] else ""
    corrected = "\u00a0²" if texts[MISPRINT] else ""
    scores = [
        score(cell["published"], cell["published_ci95"]),
        texts[SAME] or texts[OTHER] + smaller,
        texts[DEFECT] or texts[MISPRINT] + corrected,
    ]
    numbers = (
        [f"{cell['difference']:+.2f} of {cell['combined']:.2f}", f"{cell['apart']:+.1f}"]
        if cell["agent"]
        else ["", ""]
    )
    verdict = cell["verdict"].removesuffix(f", {OTHER}") + smaller
    share = (
        share_of(cell["experiment"], digests.get(cell["experiment"]), cell) if cell["agent"] else ""
    )
    return [
        who,
        verdict,
        *scores,
        share,
        *(n.replace("-", "−").replace(" ", "\u00a0") for n in numbers),
    ]


def _way(mine: pd.DataFrame | None, way: str, cell: Mapping[str, Any]) -> str:
    if mine is None or way not in mine.index:
        return ""
    row = mine.loc[way]
    decides = (row["agent"], row["parameters"]) == (cell["agent"], cell["parameters"])
    text = score(row["mean"], row["ci95"])
    return f"**{text}**" if decides else text


def score(mean: float, ci95: float) -> str:
    """Write mean and interval, not to be broken between lines."""
    return score_text(mean, ci95, 2).replace(" ", "\u00a0")


def share_of(problem: str, digest: str | None, row: Mapping[str, Any]) -> str:
    """Return the share of the Bayes-optimal value that a score is, empty where it is not known."""
    bracket = brackets.find(problem, *PUBLISHED, digest)
    if bracket is None:
        return ""
    return brackets.share_text(brackets.share(row["mean"], row["ci95"], bracket)).replace(
        " ", "\u00a0"
    )


def why(found: pd.DataFrame) -> str:
    """List cells that do not simply agree, with what is known about them."""
    rows = [
        [
            f"{row['experiment']}, {row['case']}",
            row["algorithm"],
            row["verdict"],
            row["explanation"],
            row["reference"].replace("docs/", ""),
        ]
        for row in found[~found["verdict"].isin(("agrees", "not played"))].to_dict("records")
    ]
    linked = [[*row[:4], f"[{Path(row[4]).stem}]({row[4]})" if row[4] else ""] for row in rows]
    return table(["pair", "algorithm", "verdict", "what is known", "page"], linked)


def winners(found: pd.DataFrame) -> str:
    """Return lists of winners from left to right, ours below the paper's."""
    rows = []
    for (case, experiment), lists in found.groupby(["case", "experiment"], sort=False):
        rows += [
            [f"{experiment}, {case}" if not i else "", r["source"], r["winners"]]
            for i, r in enumerate(lists.to_dict("records"))
        ]
    return table(["pair", "", "winners from left to right"], rows)


def best(results: jbrl.Results) -> str:
    """Write Figs 9 and 13 anew: the best setting of each algorithm in each experiment, then of what
    the program computes.
    """
    scores, parts = results.scores, described(results)
    settings = scores.groupby("algorithm", sort=False)["parameters"].unique()
    shown = {name: varied(found) if len(found) > 1 else [] for name, found in settings.items()}
    digests = brackets.digests_of_tests(results.units)
    rows = []
    for name in (*ALGORITHMS, *TRAINED, "Optimal", *PROGRAM):
        cells = [name]
        for part in parts:
            mine = (scores if name in PROGRAM else part.done).query(
                "algorithm == @name and experiment == @part.name and status == 'done'"
            )
            row = mine.loc[mine["mean"].idxmax()] if len(mine) else None
            cells.append("" if row is None else _best(row, shown[name], digests))
        rows.append(cells)
    return table(["algorithm", *(part.name for part in parts)], rows)


def _best(row: pd.Series, shown: list[str] | None, digests: Mapping[str, str]) -> str:
    """Return score, share and setting; bold for the best of the experiment, ≈ for a tie with it."""
    text, setting = (
        score(row["mean"], row["ci95"]),
        parameters_text(row["parameters"], shown).replace(" = ", "\u00a0=\u00a0"),
    )
    text = f"**{text}**" if row.get("best") else f"≈\u00a0{text}" if row.get("tied") else text
    return "<br>".join(filter(None, (text, _share(row, digests), setting)))


def _share(row: pd.Series, digests: Mapping[str, str]) -> str:
    if row["algorithm"] == "Optimal":  # it is shown the MDP
        return ""
    return share_of(row["test"], digests.get(row["test"]), row)


def described(results: jbrl.Results) -> list[Section]:
    """Return the experiments as the report has them, of the algorithms as they are described."""
    kept = results.scores["algorithm"].isin((*ALGORITHMS, *TRAINED, "Optimal"))
    return sections(results.scores[kept], results.returns, {"Optimal"})


def ranks(scores: pd.DataFrame, algorithm: str) -> str:
    """Return the place of an algorithm's best setting among the best of the eight, as described and
    as published, beside the paper's place.
    """
    rows = []
    for (case, experiment), printed in published.cells().groupby(
        ["case", "experiment"], sort=False
    ):
        here = scores[(scores["case"] == case) & (scores["test"] == experiment)]
        cast = {
            name: f"{name}-published" if f"{name}-published" in PROGRAM else name
            for name in ALGORITHMS
        }
        sources = {
            "paper": printed.set_index("algorithm")["mean"],
            "as described": _tops(here, dict(zip(ALGORITHMS, ALGORITHMS, strict=True))),
            "as published": _tops(here, cast),
        }
        row = [f"{experiment}, {case}"]
        for means in sources.values():
            known = algorithm in means.index
            row.append(
                (
                    f"{int(means.rank(ascending=False)[algorithm])} of {len(means)} "
                    f"({means[algorithm]:.2f})"
                )
                if known
                else ""
            )
        rows.append(row)
    return table(["pair", "paper", "as described", "as published"], rows)


def _tops(here: pd.DataFrame, cast: Mapping[str, str]) -> pd.Series:
    """Return the greatest mean of each algorithm."""
    tops = here.groupby("algorithm")["mean"].max()
    return pd.Series(
        {name: tops[agent] for name, agent in cast.items() if agent in tops.index}, dtype=float
    )


def formulas(scores: pd.DataFrame) -> str:
    """Return the formulas that the paper prints, and the one that it prints reversed."""
    rows = []
    for (case, experiment), printed in published.cells().groupby(
        ["case", "experiment"], sort=False
    ):
        here = scores[(scores["case"] == case) & (scores["test"] == experiment)]
        paper = printed[printed["algorithm"] == "OPPS-DS"].iloc[0]
        tops = here[here["algorithm"] == "OPPS-DS"]
        top = tops.loc[tops["mean"].idxmax()] if len(tops) else None
        for row in here[here["algorithm"] == "Formula"].to_dict("records"):
            text = json.loads(row["parameters"])["formula"]
            said = (
                score(paper["mean"], paper["ci95"])
                if row["parameters"] == paper["parameters"]
                else ""
            )
            found = score(top["mean"], top["ci95"]) if top is not None else ""
            rows.append(
                [
                    f"{experiment}, {case}",
                    f"`{text}`".replace("|", "\\|"),
                    said,
                    score(row["mean"], row["ci95"]),
                    found,
                ]
            )
    return table(["pair", "formula", "paper", "jbrl", "best OPPS-DS of jbrl"], rows)


def budgets(scores: pd.DataFrame, units: pd.DataFrame) -> str:
    """Return settings of the two searches in all experiments, with what a decision costs."""
    costs = units.set_index(["experiment", "algorithm", "parameters"])["latency_seconds"]
    rows = []
    for name in ("BAMCP", "BFS3"):
        mine = scores[scores["algorithm"] == name]
        shown = [
            p
            for p in ("simulations", "trajectories", "samples", "depth")
            if p in json.loads(mine["parameters"].iloc[0])
        ]
        for parameters in sorted(
            set(mine["parameters"]), key=lambda p: [json.loads(p)[s] for s in shown]
        ):
            played = mine[mine["parameters"] == parameters].set_index("experiment")
            row = [name, ", ".join(str(json.loads(parameters)[s]) for s in shown)]
            for experiment in dict.fromkeys(scores["experiment"]):
                if experiment in played.index:
                    one = played.loc[experiment]
                    cost = seconds_text(float(costs[experiment, name, parameters])).replace(
                        " ", "\u00a0"
                    )
                    row.append(f"{score(one['mean'], one['ci95'])}<br>{cost}")
                else:
                    row.append("")
            rows.append(row)
    return table(["", "budget", *dict.fromkeys(scores["experiment"])], rows)


def trained(results: jbrl.Results) -> str:
    """Write all settings of the agents that are trained on the prior, with their times."""
    parts, scores = described(results), results.scores
    scores = scores[scores["algorithm"].isin(TRAINED) & (scores["status"] == "done")]
    settings = scores[["algorithm", "parameters"]].drop_duplicates()
    settings = settings.assign(
        text=[_training(json.loads(p)) for p in settings["parameters"]],
        budget=[json.loads(p)["budget"] for p in settings["parameters"]],
    ).sort_values(["algorithm", "text", "budget"], kind="stable")
    digests = brackets.digests_of_tests(results.units)
    rows = []
    for name, parameters, text, budget in settings.itertuples(index=False):
        cells = [f"{name}{text}", f"{budget:,}"]
        for part in parts:
            here = part.done[part.done["algorithm"] == name]
            mine = here[here["parameters"] == parameters]
            cells.append(_timed(mine.iloc[0], digests) if len(mine) else "")
        rows.append(cells)
    return table(["agent", "lifetimes", *(part.name for part in parts)], rows)


def _training(parameters: Mapping[str, Any]) -> str:
    """Return what a network sees, where it is not the default."""
    inputs = parameters.get("inputs", "belief")
    return "" if inputs in ("belief", "mean") else f", `{inputs}`"


def _timed(row: pd.Series, digests: Mapping[str, str]) -> str:
    times = (seconds_text(row[f"{kind}_seconds"]) for kind in ("offline", "online"))
    text = score(row["mean"], row["ci95"])
    text = f"**{text}**" if row["best"] else f"≈\u00a0{text}" if row["tied"] else text
    return f"{text}<br>{_share(row, digests)}<br>" + ",\u00a0".join(
        t.replace(" ", "\u00a0") for t in times
    )


def table(header: list[str], rows: list[list[str]], numbers: range = range(0)) -> str:
    """Write a table in Markdown; columns `numbers` are aligned on the right."""
    rule = ["---:" if i in numbers else "---" for i in range(len(header))]
    return "".join(f"| {' | '.join(line)} |\n" for line in [header, rule, *rows])


def drawn(results: jbrl.Results, found: Comparison) -> dict[str, Image.Image]:
    """Draw the figures of the page, by file name."""
    parts = described(results)
    look = styles((*ALGORITHMS, *TRAINED, "Optimal"), {"Optimal"})
    images: dict[str, Image.Image] = {}
    for case in ("accurate", "inaccurate"):
        images[f"paper-cpu-{case}.png"] = _image(comparison_figures.beside(found.candidates, case))
    kinds: dict[str, Callable] = {
        "online": figures.score_against_online_time,
        "offline": figures.score_against_offline_time,
        "bounds": bounds.best_under_bounds,
    }
    for name, draw in kinds.items():
        drawings = [(part.name, draw(part, look)) for part in parts]
        images[f"paper-cpu-{name}.png"] = _tiled(
            [
                _image(drawing, title)
                for title, drawing in drawings
                if isinstance(drawing, figures.Drawing)
            ]
        )
    return images


def _image(drawing: figures.Drawing, title: str = "") -> Image.Image:
    with mpl.rc_context(LOOK):
        if title:
            drawing.figure.suptitle(
                title, x=0.02, y=1.06, ha="left", fontsize=11, fontweight="bold"
            )
        buffer = io.BytesIO()
        drawing.figure.savefig(
            buffer, format="png", dpi=DOTS, bbox_inches="tight", facecolor="white"
        )
    return Image.open(buffer).convert("RGB")


def _tiled(images: list[Image.Image], columns: int = 2) -> Image.Image:
    """Place images side by side, column by column: the accurate cases on the left."""
    lines = -(-len(images) // columns)
    width, height = max(i.width for i in images) + 20, max(i.height for i in images) + 20
    page = Image.new("RGB", (width * columns, height * lines), "white")
    for number, image in enumerate(images):
        page.paste(image, (number // lines * width, number % lines * height))
    return page


if __name__ == "__main__":
    main()
