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

import matplotlib as mpl
import pandas as pd
from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import jbrl  # noqa: E402
from experiments import castronovo2016 as whole  # noqa: E402
from experiments import winner_panels  # noqa: E402
from jbrl.comparison import read  # noqa: E402
from jbrl.report import comparison, figures  # noqa: E402
from jbrl.report.axes import LOOK, Drawing, styles  # noqa: E402
from jbrl.report.sections import Section, sections  # noqa: E402
from jbrl.report.text import score_text  # noqa: E402
from jbrl.stats.published import castronovo2016 as published  # noqa: E402
from jbrl.stats.published.castronovo2016 import MISPRINT, OTHER  # noqa: E402
from jbrl.stats.two_studies import Comparison  # noqa: E402

KEPT = ROOT / "experiments" / "published" / "paper-cpu"
OTHERS = ROOT / "experiments" / "published" / "paper-cells"  # of experiments/paper-cells.toml
PAGE = ROOT / "docs" / "published-comparison.md"
STATIC = ROOT / "docs" / "_static"
SMALLER, CORRECTED, PROGRAMMED = "¹²³"  # marks of a smaller budget, a misprint, a defect
DECIMALS = 3  # of the returns that are kept
ALGORITHMS = tuple(dict.fromkeys(published.cells()["algorithm"]))
TRAINED = ("ANN", "BeliefPPO", "RL2", "DPT")
PROGRAM = ("Soft-max-published", "SBOSS-published", "BEB-published")
DOTS = 110  # per inch
# tables of an archive, and the columns by which a row belongs to a unit
UNIT = {
    "units": ("experiment", "algorithm", "parameters", "seed"),
    "returns": ("experiment", "algorithm", "parameters", "seed"),
    "strategies": ("prior", "algorithm", "parameters", "seed"),
}


def main() -> None:
    keep_named(__doc__, KEPT)
    results = jbrl.Results(KEPT)
    found = jbrl.compare(KEPT)
    PAGE.write_text(
        filled(PAGE.read_text(encoding="utf-8"), blocks(results, found)), encoding="utf-8"
    )
    for name, image in drawn(results, found).items():
        image.save(STATIC / name, optimize=True)
    print(found.note)


def keep_named(about: str, kept: Path) -> None:
    """Keep the results that the command line names, where it does, in place of those before or, by
    `--add`, beside them.

    Args:
      about: what the script does, for `--help`.
    """
    parser = argparse.ArgumentParser(description=about.split("\n\n")[0])
    parser.add_argument("results", metavar="DIR", nargs="?", help="results to keep first")
    parser.add_argument("--add", action="store_true", help="keep what was kept before, too")
    options = parser.parse_args()
    if options.add and not options.results:
        parser.error("--add: expected DIR")
    if options.add:
        add(Path(options.results), kept)
    elif options.results:
        jbrl.Results(options.results).archive(kept, decimals=DECIMALS)


def add(folder: Path, kept: Path = KEPT) -> None:
    """Add results to an archive. Units that it has are replaced by those that have been played.

    `study.json` lists under "added" which units they are, with versions and machine.
    """
    with tempfile.TemporaryDirectory() as place:
        more = Path(place)
        jbrl.Results(folder).archive(more, decimals=DECIMALS)
        old, new = (json.loads((one / "study.json").read_text()) for one in (kept, more))
        units = pd.read_parquet(more / "units.parquet").query("status != 'missing'")
        units.to_parquet(more / "units.parquet", index=False)
        for name, columns in UNIT.items():
            if (table := more / f"{name}.parquet").is_file():
                joined = replaced(kept / table.name, table, columns)
                joined.to_parquet(kept / table.name, compression="zstd", index=False)
    count = units["algorithm"].value_counts(sort=False).to_dict()
    part = {"units": count, "versions": new["versions"], "machine": new["machine"]}
    names = {one["name"] for one in old["experiments"]}
    listed = {
        "experiments": [one for one in new["experiments"] if one["name"] not in names],
        "agents": [one for one in new["agents"] if one not in old["agents"]],
    }
    whole = {
        **old,
        **{name: old[name] + extra for name, extra in listed.items()},
        "added": [*old.get("added", ()), part],
    }
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
        pattern = rf"(?<=<!-- {name} -->\n).*?(?=<!-- end {name} -->)"
        parts = re.split(pattern, page, flags=re.DOTALL)
        if (count := len(parts) - 1) != 1:
            raise ValueError(f"{PAGE}: expected <!-- {name} --> once, found it {count} times")
        page = f"\n{content}\n".join(parts)
    return page


def blocks(results: jbrl.Results, found: Comparison) -> dict[str, str]:
    """Return the tables of the page, by name."""
    more = jbrl.compare(OTHERS)
    told = [found.note, *whole.facts(found, read(KEPT))]
    others = [more.note, *whole.facts(more, read(OTHERS))]
    return {
        "outcome": outcome(told[:2]),
        "deviations": items(told[2:]),
        "others": items(others),
        "cells": cells(found),
        "best": best(results),
    }


def outcome(lines: Sequence[str]) -> str:
    """State how many cells agree in which way, and the distance of the study as a whole from the
    published one.
    """
    return f"**{' '.join(f'{line}.' for line in lines)}**\n"


def items(lines: Sequence[str]) -> str:
    """Write a list of sentences in Markdown."""
    return "".join(f"- {line[0].upper()}{line[1:]}.\n" for line in lines)


def cells(found: Comparison) -> str:
    """Return the mean that decides each cell, with the paper's in brackets."""
    marks = {f"agrees, {OTHER}": SMALLER, MISPRINT: CORRECTED, "known defect": PROGRAMMED}
    columns = list(dict.fromkeys(zip(found.table["case"], found.table["experiment"], strict=True)))
    rows = []
    for algorithm, mine in found.table.groupby("algorithm", sort=False):
        by = mine.set_index(["case", "experiment"])
        row = [str(algorithm)]
        for cell in (by.loc[key] for key in columns):
            smaller = SMALLER if "instead of" in cell["explanation"] else ""
            mark = marks.get(cell["verdict"], smaller)
            row.append(f"{cell['mean']:.2f}{mark} ({cell['published']:.2f})")
        rows.append(row)
    names = [e if case == "accurate" else f"{e}, uniform" for case, e in columns]
    return table(["algorithm", *names], rows)


def best(results: jbrl.Results) -> str:
    """Write Figs 9 and 13 anew: the best setting of each algorithm in each experiment, then of what
    the program computes.
    """
    scores, parts = results.scores, described(results)
    rows = []
    for name in (*ALGORITHMS, *TRAINED, "Optimal", *PROGRAM):
        row = [name]
        for part in parts:
            mine = (scores if name in PROGRAM else part.done).query(
                "algorithm == @name and experiment == @part.name and status == 'done'"
            )
            row.append(_best(mine.loc[mine["mean"].idxmax()]) if len(mine) else "")
        rows.append(row)
    return table(["algorithm", *(part.name for part in parts)], rows)


def _best(row: pd.Series) -> str:
    """Return the score; bold for the best of the experiment, ≈ for a tie with it."""
    text = score_text(row["mean"], row["ci95"], 2).replace(" ", "\u00a0")
    return f"**{text}**" if row.get("best") else f"≈\u00a0{text}" if row.get("tied") else text


def described(results: jbrl.Results) -> list[Section]:
    """Return the experiments as the report has them, of the algorithms as they are described."""
    kept = results.scores["algorithm"].isin((*ALGORITHMS, *TRAINED, "Optimal"))
    return sections(results.scores[kept], results.returns, {"Optimal"})


def table(header: list[str], rows: list[list[str]]) -> str:
    """Write a table in Markdown."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def drawn(results: jbrl.Results, found: Comparison) -> dict[str, Image.Image]:
    """Draw the figures of the page, by file name."""
    parts = described(results)
    look = styles((*ALGORITHMS, *TRAINED, "Optimal"), {"Optimal"})
    images: dict[str, Image.Image] = {}
    for case in ("accurate", "inaccurate"):
        images[f"paper-cpu-{case}.png"] = _image(comparison.beside(found.candidates, case))
    kinds: dict[str, Callable] = {
        "online": figures.score_against_online_time,
        "offline": figures.score_against_offline_time,
        "bounds": winner_panels.best_under_bounds,
    }
    for name, draw in kinds.items():
        drawings = [(part.name, draw(part, look)) for part in parts]
        images[f"paper-cpu-{name}.png"] = _tiled(
            [_image(drawing, title) for title, drawing in drawings if isinstance(drawing, Drawing)]
        )
    return images


def _image(drawing: Drawing, title: str = "") -> Image.Image:
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
