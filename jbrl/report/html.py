"""One self-contained page per study, with its tables beside it."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

import jbrl.report.bounds  # noqa: F401 (lists its figure)
from jbrl.errors import JbrlError
from jbrl.report import strategies as searches
from jbrl.report import tables
from jbrl.report.figures import FIGURES
from jbrl.report.style import Style, styles
from jbrl.report.svg import inline
from jbrl.report.tables import Section
from jbrl.report.text import ABSENT, listing, parameters_text, seconds_text

WORDS = {"n_mdps": "MDPs", "memory_gib": "memory, GiB", "horizon_epsilon": "horizon, precision"}  # names that underscores would spoil
SETTINGS = ("study", "machine", "versions")  # tables of the manifest that the page shows


def write_report(
    scores: pd.DataFrame, returns: pd.DataFrame, manifest: Mapping[str, Any], out: Path, strategies: pd.DataFrame | None = None
) -> Path:
    """Write `index.html` and the same tables as `summary` and `scores`, each `.csv` and `.md`, to the folder `out`.

    Where agents have searched, write `strategies.html` as well.

    Args:
      scores: one row per unit of the study, columns `jbrl.report.tables.SCORES`; seconds; NaN where nothing is known.
      returns: one row per MDP of each finished unit, columns `jbrl.analysis.table.RETURNS`.
      manifest: `study`, `machine` and `versions` are tables to show. Oracles are the algorithms in the list `oracles`, and those of
        the entries of `units` whose `oracle` is true. All may be absent.
      out: made if it is not there.
      strategies: what agents have tried offline: columns as `jbrl.report.strategies.render` says.

    Returns:
      Path of the page.

    Raises:
      JbrlError: a table lacks a column, holds a score that is not finite or two rows for one agent, or `out` cannot be written.
    """
    oracles = oracles_of(manifest)
    parts = tables.sections(scores, returns, oracles)
    searched = strategies is not None and len(strategies) > 0
    pages = {"index.html": render(parts, styles(scores["algorithm"], oracles), manifest, searched=searched)}
    if strategies is not None and searched:
        version = str((manifest.get("versions") or {}).get("jbrl", ""))
        pages["strategies.html"] = searches.render(strategies, _name(manifest), template("strategies.html"), version)
    try:
        out.mkdir(parents=True, exist_ok=True)
        tables.write_tables(parts, out)
        for name, page in pages.items():
            (out / name).write_text(page, encoding="utf-8")
    except OSError as error:
        raise JbrlError(f"{out}: the report cannot be written here: {error.strerror}; choose another folder, or make room") from None
    return out / "index.html"


def _name(manifest: Mapping[str, Any]) -> str:
    return str((manifest.get("study") or {}).get("name", "study"))


def render(parts: list[Section], style: Mapping[str, Style], manifest: Mapping[str, Any], *, searched: bool = False) -> str:
    """The page as text.

    Args:
      searched: link to the page about searches.
    """
    everything = pd.concat([s.table for s in parts], ignore_index=True)
    return template("report.html").render(
        name=_name(manifest),
        searched=searched,
        facts=_facts(parts, everything, manifest),
        sections=[_section(s, style) for s in parts],
        overview=_overview(parts),
        styles=style,
        undone=everything[everything["status"] != "done"].to_dict("records"),
        has_reasons=bool(everything["reason"].any()),
        n_units=len(everything),
        settings=[(title, _lines(manifest[title])) for title in SETTINGS if isinstance(manifest.get(title), Mapping)],
        devices=list(dict.fromkeys(everything["device"].dropna().astype(str))),
        agents=_agents(everything),
        absent=ABSENT,
        version=str((manifest.get("versions") or {}).get("jbrl", "")),
    )


def template(name: str) -> Template:
    """A template of `jbrl/report/templates`."""
    environment = Environment(
        loader=PackageLoader("jbrl.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"seconds": seconds_text, "listing": listing, "sortable": _sortable}
    return environment.get_template(name)


def oracles_of(manifest: Mapping[str, Any]) -> set[str]:
    """Algorithms that see the true MDP."""
    units = manifest.get("units") or []
    return {*(manifest.get("oracles") or ()), *(u["algorithm"] for u in units if u.get("oracle"))}


def _facts(parts: list[Section], everything: pd.DataFrame, manifest: Mapping[str, Any]) -> list[str]:
    """What the study is, in a few words each."""
    study = manifest.get("study") or {}
    sizes = sorted(set(everything.loc[everything["status"] == "done", "n"]))
    agents = everything.drop_duplicates(["algorithm", "parameters"])
    found = [_count(len(parts), "experiment"), f"{_count(len(agents), 'agent')} of {_count(agents['algorithm'].nunique(), 'algorithm')}"]
    if sizes:
        found.append(f"{_count(sizes[0], 'MDP')} each" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} MDPs")
    if "horizon" in study:
        found.append(_count(study["horizon"], "decision") if isinstance(study["horizon"], int) else f"horizon {study['horizon']}")
    if "discount" in study:
        found.append(f"discount {study['discount']}")
    seeds = study.get("seed", [])
    seeds = seeds if isinstance(seeds, list) else [seeds]
    return found + ([f"seed{'s' * (len(seeds) > 1)} {listing([str(s) for s in seeds])}"] if seeds else [])


def _section(section: Section, style: Mapping[str, Style]) -> dict[str, Any]:
    champions = section.champions
    drawings = []
    for kind in FIGURES:
        drawing = kind.draw(section, style)
        if drawing is not None:
            id = f"{section.id}--{kind.id}"
            svg = Markup(inline(drawing.figure, id, f"{kind.title}, {section.name}", drawing.titles))
            drawings.append({"title": kind.title, "caption": kind.caption, "note": drawing.note, "svg": svg})
    rows = section.table.to_dict("records")
    scale = _scale(section)
    for row in rows:
        row["score"] = section.score(pd.Series(row))
        row["bar"] = _bar(row, scale)
    return {
        "name": section.name,
        "id": section.id,
        "prior": section.prior,
        "test": section.test,
        "note": section.note,
        "rows": rows,
        "figures": drawings,
        "best": next((r for r in rows if r["best"]), None),
        "tied": [r["label"] for r in champions[champions["tied"]].to_dict("records")],
        "n_champions": len(champions),
        "has_latency": bool(section.table["latency_seconds"].notna().any()),
        "several_devices": section.done["device"].nunique() > 1,
    }


def _overview(parts: list[Section]) -> list[dict[str, Any]]:
    """Rows of the overview: an algorithm and, for each experiment, its best agent or None."""
    cells = {
        (s.name, row["algorithm"]): {"score": s.score(row), "setting": row["setting"], "best": row["best"], "tied": row["tied"]}
        for s in parts
        for _, row in tables.overview([s]).iterrows()
    }
    oracles = {name for s in parts for name in s.oracles["algorithm"]}
    return [
        {"algorithm": name, "oracle": name in oracles, "cells": [cells.get((s.name, name)) for s in parts]}
        for name in tables.algorithms(parts)
    ]


def _agents(everything: pd.DataFrame) -> list[dict[str, Any]]:
    """Algorithms with the parameters of all their agents, in full."""
    agents = everything.sort_values("place").drop_duplicates(["algorithm", "parameters"])
    return [
        {"algorithm": name, "settings": [parameters_text(p) or "no parameters" for p in rows["parameters"]]}
        for name, rows in agents.groupby("algorithm", sort=False)
    ]


def _lines(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """A table of the manifest as names and texts; tables within it have dotted names."""
    found: list[tuple[str, str]] = []
    for name, value in table.items():
        if isinstance(value, Mapping):
            found += _lines(value, f"{prefix}{name}.")
        elif value is not None:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            found.append((prefix + WORDS.get(name, str(name).replace("_", " ")), {"True": "yes", "False": "no"}.get(text, text)))
    return found


def _scale(section: Section) -> tuple[float, float]:
    """Ends of the small interval drawings of a table, those of the agents that compete."""
    rows = section.competitors
    if rows.empty:
        return 0.0, 1.0
    width = rows["ci95"].fillna(0)
    low, high = float((rows["mean"] - width).min()), float((rows["mean"] + width).max())
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _bar(row: Mapping[str, Any], scale: tuple[float, float]) -> tuple[float, float, float] | None:
    """Lower end, mean and upper end in per cent of the scale; None without a score and for oracles, which would set the scale."""
    if row["oracle"] or not math.isfinite(row["mean"]):
        return None
    width = row["ci95"] if math.isfinite(row["ci95"]) else 0.0
    low, high = scale
    left, middle, right = (round(100 * (v - low) / (high - low), 1) for v in (row["mean"] - width, row["mean"], row["mean"] + width))
    return left, middle, right


def _sortable(value: Any) -> str:
    """A number for the script that sorts tables; empty when there is none."""
    return f"{value:.9g}" if value is not None and math.isfinite(value) else ""


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
