"""Brackets of the Bayes-optimal values of the field's problems: compute them, tabulate them,
draw them.

python experiments/bounds/collect.py run OUT [--strategies STUDY] [NAME…]
    computes those that are missing, pieces in OUT, and writes a JSON file each beside this script;
    STUDY has results of experiments/trained.toml, whose policies may earn the lower ends of the
    deepest brackets
python experiments/bounds/collect.py lower|upper OUT NAME…
    computes ends of brackets that are kept anew, where they are not certified or may be nearer
python experiments/bounds/collect.py table
    writes jbrl/stats/brackets.csv, all brackets to experiments/published/brackets.csv, and the
    table of docs/bounds.md
python experiments/bounds/collect.py draw
    draws docs/_static/bounds.png
"""

import argparse
import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/bounds.md"
MARKS = ("<!-- brackets -->\n", "<!-- end brackets -->")
TABLE = HERE.parents[1] / "jbrl/stats/brackets.csv"
PUBLISHED = HERE.parent / "published/brackets.csv"
COLUMNS = ("problem", "digest", "discount", "horizon", "decisions", "lower", "upper", "clairvoyant")
BANDITS = ("Bandit", "Bandit(arms=10)", 'Bandit(arms=3,prior="1 1 1")', "Bandit(states=2)")
# Decisions looked ahead, and the brackets of fewer decisions that the figure shows.
DECISIONS = {
    "GC": 26,
    "GDL": 40,
    "Grid": 4,
    "GC-appendix": 18,
    "GC(n_states=3)": 20,
    "GC(n_states=4)": 20,
    "GC(n_states=6)": 22,
    "GC(n_states=7)": 20,
    "GC(n_states=8)": 18,
    "UGC": 8,
    "UGDL": 6,
    "UGrid": 1,
    # known optima
    **dict.fromkeys(BANDITS, 0),
}
SECONDS = {"Grid": 1800}  # for an upper end; of others the usual sizes
CHAINS = ("GC-appendix", *(f"GC(n_states={n})" for n in (3, 4, 6, 7, 8)))
# agents that compete for a lower end with what the look-ahead suggests
AGENTS: dict[str, dict[str, dict]] = {
    "GC": {"DPT": {"budget": 3_072_000}},
    "Grid": {"BeliefPPO": {"budget": 2_097_152, "inputs": "mean and belief"}},
    "UGrid": {"OPPS-DS": {}},
    **{name: {"DPT": {"budget": 819_200}} for name in CHAINS},
    **{name: {"OPPS-DS": {}, "DPT": {"budget": 819_200}} for name in ("UGC", "UGDL")},
}
# MDPs in which the policy of a lower end plays, where not the usual ones
PLAYED = {
    "GC": 3_276_800,
    "Grid": 204_800,
    "UGrid": 102_400,
    "GDL": 204_800,
    **dict.fromkeys((*CHAINS, "UGC", "UGDL"), 819_200),
}
# Of GC those at 0, 4, 8, 12, 15 and 27, and those of GDL, are of the look-ahead alone.
CURVES = {"GC": (0, 2, 4, 8, 10, 12, 15, 19, 22, 25, 26, 27), "GDL": (0, 8, 16, 24, 40)}
# label of upper ends: words of their method, and a marker
UPPER_ENDS = {
    "all is revealed": ("the MDP is revealed", "o"),
    "one state hidden": ("all rows but those of one state", "s"),
    "two states hidden": ("all rows but those of two states", "D"),
}
# Agents of the published comparison played again (docs/published-comparison.md), best ones.
SCORES = HERE.parent / "published/paper-cpu"


def file(name: str, decisions: int) -> Path:
    """Return the file of a bracket."""
    slug = "".join(c if c.isalnum() or c == "-" else "_" for c in name).strip("_")
    return HERE / f"{slug}-{decisions}.json"


def strategies(study: Path, problem: str) -> dict[str, object]:
    """Return the policies that a study has trained or found on a problem."""
    import jbrl

    found = jbrl.Results(study).learned_on(jbrl.problem(problem).digest)
    return {name: learned.strategy for name, learned in found.items()}


def run(out: Path, study: Path | None, names: list[str]) -> None:
    """Compute brackets that are missing."""
    import jbrl

    tasks = [(name, d) for name, curve in CURVES.items() for d in curve]
    for name, decisions in dict.fromkeys([*tasks, *DECISIONS.items()]):
        if (names and name not in names) or file(name, decisions).exists():
            continue
        more: dict = competing(name) if DECISIONS.get(name) == decisions else {}
        if study and more:
            more["agents"] |= strategies(study, name)
        found = jbrl.bound(name, decisions=decisions, out=out, **more).as_dict()
        file(name, decisions).write_text(json.dumps(found, indent=1) + "\n")
        print(f"{name}, {decisions} decisions: {found['lower']:.4g} to {found['upper']:.4g}")


def competing(name: str) -> dict:
    """Return the agents that compete for a lower end, and the MDPs in which the best one plays."""
    import jbrl

    agents = {agent: jbrl.AGENTS[agent].agent(**how) for agent, how in AGENTS.get(name, {}).items()}
    return {"agents": agents, "played": PLAYED.get(name)}


def one_end(side: str, out: Path, names: Sequence[str]) -> None:
    """Put new ends of a side, which do not depend on what those of the other rest on, into kept
    brackets, where those are not certified or farther; a lower end that was played in more MDPs
    stands in any case.
    """
    import jbrl

    for name, old in zip(names, narrowest(names), strict=True):
        above = side == "upper"
        budget = SECONDS.get(name)
        aside = {"decisions": DECISIONS[name], "played": 2, "budget": budget}
        how: dict = aside if above else competing(name)
        found = jbrl.bound(name, **({"decisions": 1} | how), out=out).as_dict()
        if above:
            stands = found["upper"] < old["upper"]
        else:
            stands = found["lower"] > old["lower"] or played(found) > played(old)
        if stands or not old[f"{side}_end"].get("assumes"):
            about = ("decisions", "state_counts", "clairvoyant") if above else ()
            new = old | {key: found[key] for key in (side, f"{side}_end", *about)}
            new["certified"] = certified(new) == "both ends"
            file(name, new["decisions"]).write_text(json.dumps(new, indent=1) + "\n")
            if old["decisions"] not in (new["decisions"], *CURVES.get(name, ())):
                file(name, old["decisions"]).unlink()
        print(f"{name}: {old[side]:.4g}, with {found[side]:.4g} now", flush=True)


def played(bracket: dict) -> int:
    """Return in how many MDPs the policy of a lower end has played."""
    return bracket["lower_end"]["rests_on"].get("n_mdps", 0)


def load(name: str, decisions: int) -> dict | None:
    """Return a bracket that is kept."""
    path = file(name, decisions)
    return json.loads(path.read_text()) if path.exists() else None


def narrowest(names: Iterable[str] = DECISIONS) -> list[dict]:
    """Return the narrowest bracket of each problem."""
    found = []
    for name in names:
        kept = [one for d in range(200) if (one := load(name, d))]
        found += [min(kept, key=lambda one: one["upper"] - one["lower"])] if kept else []
    return found


def certified(kept: dict) -> str:
    """Return which ends hold whatever the distribution of returns is."""
    ends = {side: kept[f"{side}_end"] for side in ("lower", "upper")}
    # an end without sampling error needs no assumption; one that names none has Student's limit
    held = [side for side, end in ends.items() if end["confidence"] == 1 or end.get("assumes")]
    if len(held) == 2:
        return "both ends"
    return f"{held[0]} end" if held else "neither"


def rows() -> str:
    """Return the table of the page."""
    lines = [
        "| problem | D | lower end | upper end | width | shown the MDP |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in narrowest():
        width = (one["upper"] - one["lower"]) / one["lower"]
        shown = "–" if one["clairvoyant"] is None else f"{one['clairvoyant']:.4g}"
        lines.append(
            f"| {one['problem']} | {one['decisions']} | {one['lower']:.4g} | {one['upper']:.4g} "
            f"| {width:.1%} | {shown} |"
        )
    return "\n".join(lines) + "\n"


def flat(kept: dict) -> dict:
    """Return a bracket as a row: that of `jbrl/stats/brackets.csv`, and what its ends rest on."""
    row = {name: kept[name] for name in (*COLUMNS, "confidence", "seed")}
    row["certified"] = kept.get("certified")
    for side in ("lower", "upper"):
        end = kept[f"{side}_end"]
        row |= {f"{side}_{name}": end.get(name) for name in ("mean", "standard_error", "assumes")}
        rests_on = end["rests_on"]
        row[f"{side}_method"] = ": ".join(
            rests_on[name] for name in ("method", "policy") if name in rests_on
        )
        row[f"{side}_n_mdps"] = rests_on.get("n_mdps")
        row[f"{side}_seconds"] = end.get("seconds")
    return row


def every() -> list[dict]:
    """Return all brackets that are kept, by problem and decisions."""
    kept = [json.loads(path.read_text()) for path in HERE.glob("*.json")]
    return sorted(map(flat, kept), key=lambda row: (row["problem"], row["decisions"]))


def write(path: Path, found: list[dict], columns: Sequence[str]) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="") as target:
        writer = csv.DictWriter(target, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


def table() -> None:
    """Write the narrowest bracket of each problem, all of them, and the table of the page."""
    write(TABLE, narrowest(), COLUMNS)
    write(PUBLISHED, every(), list(every()[0]))
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    PAGE.write_text(f"{before}{MARKS[0]}\n{rows()}\n{MARKS[1]}{after}")


def draw() -> None:
    """Draw brackets against decisions, with the best agents as lines."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt
    import numpy as np

    from jbrl.results import Results

    scores = Results(SCORES).scores
    kept = {name: [one for d in curve if (one := load(name, d))] for name, curve in CURVES.items()}
    kept = {name: found for name, found in kept.items() if found}
    width = 3.5 * len(kept)
    figure, axes = plt.subplots(1, len(kept), figsize=(width, 3.8), layout="constrained")
    for axis, (name, found) in zip(axes, kept.items(), strict=True):
        decisions = [one["decisions"] for one in found]
        lower = np.maximum.accumulate([one["lower"] for one in found])
        upper = np.minimum.accumulate([one["upper"] for one in found])
        axis.fill_between(decisions, lower, upper, color="C0", alpha=0.25, label="bracket")
        axis.plot(decisions, lower, "C0", lw=1)
        for label, (words, marker) in UPPER_ENDS.items():
            mine = [one for one in found if words in one["upper_end"]["rests_on"]["method"]]
            points = [(one["decisions"], one["upper"]) for one in mine]
            if points:
                axis.plot(*zip(*points, strict=True), f"C0{marker}-", ms=4, lw=1, label=label)
        axis.axhline(found[-1]["clairvoyant"], color="0.5", ls=":", label="shown the MDP")
        rows = scores[(scores["experiment"] == name) & (scores["algorithm"] != "Optimal")]
        best = rows.sort_values("mean").groupby("algorithm").tail(1).sort_values("mean").tail(3)
        for number, row in enumerate(best.iloc[::-1].itertuples()):
            axis.axhline(row.mean, color=f"C{number + 1}", lw=1, label=row.algorithm)
        axis.set(title=name, xlabel="D, decisions looked ahead")
        axis.legend(fontsize=7, frameon=False, loc="upper right", bbox_to_anchor=(1, 0.92))
    axes[0].set_ylabel("discounted return")
    figure.savefig(HERE.parents[1] / "docs/_static/bounds.png", dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("part", choices=("run", "lower", "upper", "table", "draw"))
    parser.add_argument("out", metavar="OUT", type=Path, nargs="?")
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.add_argument("--strategies", metavar="STUDY", type=Path)
    options = parser.parse_intermixed_args()
    part, out = options.part, options.out
    if (out is None) == (part in ("run", "lower", "upper")):
        parser.error(f"{part}: expected {'OUT' if out is None else 'nothing more'}")
    if part == "run":
        run(out, options.strategies, options.names)
    elif part in ("lower", "upper"):
        one_end(part, out, options.names)
    else:
        {"table": table, "draw": draw}[part]()
