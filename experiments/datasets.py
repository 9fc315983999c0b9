"""Describe the published results: `python experiments/datasets.py` writes the data card and the
Croissant metadata of experiments/published anew, with checksums, from the files and ABOUT.
"""

import argparse
import fnmatch
import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd

import jbrl
from jbrl.datasets import DATASETS, METADATA, POLICIES, PRETRAINED

ROOT = Path(__file__).parent / "published"
COLUMNS = "columns.csv"


def played(study: str, keep: str, options: str = "") -> str:
    """Return the commands that play a study and keep its results."""
    return f"jbrl run experiments/{study}.toml --out OUT{options}; {keep}"


# Title, what one row is, commands, where the file does not say it the commit that has kept it (each
# pins jax 0.10.2 in its constraints.txt), and the time where it is not that of `hours_of`.
ABOUT = {
    "castronovo2016": (
        "Castronovo et al. 2016, played again",
        "634 units (agent with parameters, prior, problem) of 500 MDPs and 250 decisions; 432 of "
        "them are of the 1,452 of experiments/paper.toml, which take some 121 days of a core",
        played("paper-cpu", "python experiments/paper_cpu.py OUT"),
        "",
        "2.5 h of 2 cores, shared with other work",
    ),
    "castronovo2016-cells": (
        "Cells of the same comparison on up to 8,000 other MDPs",
        "67 units of 32 to 8,000 MDPs",
        played(
            "paper-cells", "jbrl archive OUT --out experiments/published/paper-cells --decimals 3"
        ),
        "",
        "some 2 h of 1 core, beside other work",
    ),
    "prior-trained": (
        "What training on the prior buys",
        "66 units of 2,000 MDPs, by offline time",
        played("trained", "python experiments/trained.py OUT"),
    ),
    "pretrained": (
        "Scores of the pretrained policies",
        "a policy on 8,000 MDPs",
        "python experiments/pretrained.py",
        "92f3936",
        "0.4 h of 1 core",
    ),
    "wrong-priors": (
        "What a wrong prior costs",
        "551 units of 500 MDPs",
        played("wrong-priors", "python experiments/wrong_priors.py OUT"),
    ),
    "features": (
        "Features of problems, and how agents do there",
        "mean of an agent on a problem of experiments/features.toml",
        played("features", "python experiments/features.py OUT"),
        "246f083",
        "0.3 h of 2 busy cores",
    ),
    "price-of-time": (
        "Best agents within limits of time on chains, dense MDPs, loops and mazes",
        "144 units of 500 MDPs",
        played("price-of-time", "python experiments/price_of_time.py OUT"),
    ),
    "brackets": (
        "Brackets of Bayes-optimal values (docs/bounds.md)",
        "bracket of a problem by the decisions looked ahead, lifetimes of 250 decisions",
        "python experiments/bounds/collect.py run OUT --strategies out/trained; "
        "python experiments/bounds/collect.py table",
        "9891caf and before",
    ),
    "bandits": (
        "Shares of known optima on bandits",
        "59 units of 1,000 MDPs",
        played("bandits", "python experiments/bandits.py OUT"),
    ),
    "deep-on-mdps": (
        "Deep agents on finite MDPs",
        "27 units of 250 MDPs",
        played("deep-on-mdps", "python experiments/deep_on_mdps.py OUT"),
    ),
    "tabular": (
        "Tabular learners on small environments",
        "mean of an agent with parameters in an experiment",
        played("tabular", "python experiments/tabular.py OUT"),
        "62de5a9",
        "not kept",
    ),
    "jordan2020": (
        "Jordan et al. 2020, played again",
        "score of one trial, with the hyperparameters drawn for it; kept in pieces (`--only`)",
        played("jordan", "python experiments/jordan_kept.py OUT"),
        "86c9e3e",
    ),
    "jordan2020-end": (
        "The same trials at the end of life",
        "mean return of the episodes in which a trial learns, and of 30 more with its final policy",
        "jbrl run experiments/jordan-end-acrobot.toml --out OUT2; "
        + played("jordan-end", "python experiments/jordan_published.py --end OUT OUT2"),
        "ce30384",
        "not kept",
    ),
    "jordan2020-beside": (
        "Other agents on the environments of Jordan et al. 2020",
        "74 units of up to 50 trials",
        played("jordan-beside", "python experiments/jordan_published.py --beside OUT"),
        "",
        "0.3 h of 1 core",
    ),
    "bsuite": (
        "Logs of DQN, ActorCritic and PPO on all 468 settings of bsuite",
        "one logged episode",
        played("bsuite-agents", "jbrl bsuite import OUT --to agents.parquet"),
        "4ded1af",
        "DQN 2.1 h of processors; the others not kept",
    ),
    "bsuite-recurrent": (
        "Logs of RecurrentActorCritic on bsuite",
        "one logged episode",
        played("bsuite-recurrent", "jbrl bsuite import OUT --to recurrent.parquet"),
        "b381940",
        "some 10 h of 1 core, beside other work",
    ),
    "bsuite-seeds": (
        "Logs of several seeds on bsuite's testing sweep",
        "one logged episode",
        played("bsuite-seeds", "jbrl bsuite import OUT --to seeds.parquet"),
        "b381940",
        "not kept",
    ),
    "bsuite-exploration": (
        "Logs of BootDQN on deep sea",
        "one logged episode",
        played(
            "bsuite-exploration",
            "jbrl bsuite import OUT --to exploration.parquet",
            " --only '/[0-9]/(?<!tic/[6-9]/)'",
        ),
        "803e426, the larger by 1cd3924",
        "up to 20 and 16 cells not kept; the others 1 h of 1 core, busy",
    ),
    "bsuite-reference": (
        "Logs of Random and Scripted on all 468 settings of bsuite",
        "one logged episode",
        played("bsuite", "jbrl bsuite import OUT --to reference.parquet"),
        "567b451",
        "Random 150 s; Scripted not kept",
    ),
}
TYPES = {"b": "sc:Boolean", "i": "sc:Integer", "I": "sc:Integer", "f": "sc:Float", "F": "sc:Float"}
# of Croissant 1.0, whole; checksums in SHA-256 are a word of schema.org
WORDS = (
    *("citeAs", "column", "extract", "field", "fileObject", "fileProperty", "fileSet", "format"),
    *("includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet"),
    *("references", "regex", "repeated", "replace", "separator", "source", "subField", "transform"),
)
CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{word: f"cr:{word}" for word in WORDS},
}


def files_of(name: str) -> list[Path]:
    """Return the files of a dataset."""
    place = ROOT / DATASETS[name]
    return sorted(file for file in place.iterdir()) if place.is_dir() else [place]


def read(file: Path) -> pd.DataFrame:
    """Read a table."""
    return pd.read_csv(file) if file.suffix == ".csv" else pd.read_parquet(file)


def meaning(column: str) -> str:
    """Return what a column is, with its unit; `*` in the list stands for any characters."""
    known = pd.read_csv(ROOT / COLUMNS).set_index("column")["meaning"]
    return next(known[key] for key in known.index if fnmatch.fnmatchcase(column, key))


def hours_of(name: str) -> str:
    """Return the hours that the times in the files of a dataset add up to: of units, compilation
    included, of pieces, or of the ends of brackets.
    """
    if name == "jordan2020":
        seconds = read(ROOT / "jordan/pieces.csv")[["seconds", "compile_seconds"]].sum().sum()
        return f"{seconds / 3600:.1f} h of 1 core, the sum of `jordan/pieces.csv`"
    if name == "brackets":
        ends = read(*files_of(name))[["lower_seconds", "upper_seconds"]].dropna()
        return f"{ends.sum().sum() / 3600:.1f} h for {len(ends)} of them; the others not kept"
    units = read(ROOT / DATASETS[name] / "units.parquet")
    study = json.loads((ROOT / DATASETS[name] / "study.json").read_text(encoding="utf-8"))
    decisions = units["n"] * study["study"]["horizon"]
    spent = units["offline_seconds"] + decisions * units["online_seconds"]
    cores = study["machine"]["cores"]
    spent = (spent + units["compile_seconds"].fillna(0)).sum() / 3600
    return f"{spent:.1f} h of {cores} core{'s' * (cores > 1)}, the sum of the units' times"


def made_by(name: str, commit: str) -> str:
    """Return commit, versions and processor of a dataset, as far as they were kept."""
    study = next((file for file in files_of(name) if file.name == "study.json"), None)
    if study is None:
        return f"kept by commit {commit}, jax 0.10.2; processor not kept"
    about = json.loads(study.read_text(encoding="utf-8"))
    parts = [about, *about.get("added", [])]
    commits = [part["versions"].get("commit", "not kept") for part in parts]
    named = [one if " " in one else one[:9] + " with changes" * ("-" in one) for one in commits]
    versions = dict.fromkeys(f"jax {part['versions']['jax']}" for part in parts)
    machines = dict.fromkeys(part["machine"]["processor"] for part in parts)
    return f"commit {', then '.join(named)}, {', '.join([*versions, *machines])}"


def record_set(name: str, file: Path) -> dict[str, Any]:
    """Describe the columns of one table."""
    where = file.relative_to(ROOT).as_posix()
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{where}/{column}",
            "name": column,
            "description": meaning(column),
            "dataType": TYPES.get(str(kind)[0], "sc:Text"),
            "source": {"fileObject": {"@id": where}, "extract": {"column": column}},
        }
        for column, kind in read(file).dtypes.items()
    ]
    return {
        "@type": "cr:RecordSet",
        "@id": f"{name}/{file.stem}",
        "name": f"{name}/{file.stem}",
        "description": ABOUT[name][0],
        "field": fields,
    }


def file_object(file: Path) -> dict[str, Any]:
    """Describe one file."""
    kinds = {
        ".parquet": "application/x-parquet",
        ".csv": "text/csv",
        ".npz": "application/zip",
        ".md": "text/markdown",
    }
    where = file.relative_to(ROOT).as_posix()
    return {
        "@type": "cr:FileObject",
        "@id": where,
        "name": where,
        "contentUrl": where,
        "contentSize": f"{file.stat().st_size} B",
        "encodingFormat": kinds.get(file.suffix, "application/json"),
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }


def croissant() -> dict[str, Any]:
    """Return the metadata of all datasets."""
    files = [(name, file) for name in DATASETS for file in files_of(name)]
    policies = [file for name in PRETRAINED for file in sorted((ROOT / POLICIES / name).iterdir())]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": "jbrl",
        "description": "Scores and computation times of reinforcement-learning agents with and "
        "without prior knowledge, in Dirichlet MDPs, in the environments of Jordan et al. 2020 "
        "and in bsuite.",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "version": jbrl.__version__,
        "license": "https://spdx.org/licenses/MIT",
        "creator": {"@type": "sc:Organization", "name": "The jbrl developers"},
        "citeAs": "CITATION.cff of jbrl, and the papers that `jbrl cite NAME` prints",
        "distribution": [file_object(file) for file in (*(file for _, file in files), *policies)],
        "recordSet": [record_set(name, file) for name, file in files if file.suffix != ".json"],
    }


def card() -> str:
    """Return the data card."""
    rows = []
    for name, (title, row, command, *more) in ABOUT.items():
        commit, hours = (*more, "", "")[:2]
        made, hours = made_by(name, commit), hours or hours_of(name)
        rows.append(f"| `{name}` | {title}: {row} | `{command}` | {made} | {hours} |")
    cells = read(ROOT / DATASETS["castronovo2016-cells"] / "units.parquet")
    untimed = cells["online_seconds"].isna().sum()
    return "\n".join(
        [
            "# Published results",
            "",
            '`jbrl.load_results("castronovo2016")` reads one of them, after comparing checksums.',
            f"`{METADATA}` (Croissant) has files, checksums and columns; `python",
            "experiments/datasets.py` writes it and this page. MIT licence. No personal data:",
            "everything is simulated. Times hold for the machine named, the scores for any.",
            "",
            "| name | what: one row or unit | made by | with | time |",
            "|---|---|---|---|---|",
            *rows,
            "",
            f"`{POLICIES}/` has a policy for each of the six experiments, with a card of its own:",
            '`jbrl.load_pretrained("GC")`.',
            "",
            f"`{COLUMNS}` says what each column is, with its unit; seconds are wall seconds.",
            "Scores of studies are rounded to 3 decimals. Missing values: the agent or setting has",
            f"no such quantity. {untimed} of the {len(cells)} units of `castronovo2016-cells` have",
            "no times: they were played beside other work.",
            "",
        ]
    )


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n\n")[0]).parse_args()
    text = json.dumps(croissant(), ensure_ascii=False)
    (ROOT / METADATA).write_text(text + "\n", encoding="utf-8")
    (ROOT / "README.md").write_text(card(), encoding="utf-8")
