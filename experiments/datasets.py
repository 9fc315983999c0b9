"""Describe the published results: `python experiments/datasets.py` writes the data card and the
Croissant metadata of experiments/published anew, with checksums, from the files and ABOUT.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd

from jbrl.datasets import DATASETS, METADATA, POLICIES, PRETRAINED

ROOT = Path(__file__).parent / "published"

# title, what one row is, command, hours of how many cores
ABOUT = {
    "castronovo2016": (
        "Castronovo et al. 2016, played again",
        "620 units (agent with parameters, prior, problem) of 500 MDPs and 250 decisions",
        "jbrl run experiments/paper-cpu.toml",
        "2.5 h of 2 cores",
    ),
    "castronovo2016-cells": (
        "Cells of the same comparison on up to 8,000 other MDPs",
        "67 units of 32 to 8,000 MDPs",
        "jbrl run experiments/paper-cells.toml",
        "not kept",
    ),
    "prior-trained": (
        "What training on the prior buys",
        "66 units of 2,000 MDPs, by offline time",
        "jbrl run experiments/trained.toml",
        "2.7 h of 1 core",
    ),
    "pretrained": (
        "Scores of the pretrained policies",
        "a policy on 8,000 MDPs",
        "python experiments/pretrained.py",
        "0.4 h of 1 core",
    ),
    "wrong-priors": (
        "What a wrong prior costs",
        "289 units of 500 MDPs",
        "jbrl run experiments/wrong-priors.toml",
        "not kept",
    ),
    "features": (
        "Features of problems, and how agents do there",
        "mean of an agent on a problem of experiments/features.toml",
        "python experiments/features.py",
        "0.3 h of 2 busy cores",
    ),
    "bandits": (
        "Shares of known optima on bandits",
        "units of 1,000 MDPs",
        "jbrl run experiments/bandits.toml",
        "not kept",
    ),
    "deep-on-mdps": (
        "Deep agents on finite MDPs",
        "27 units of 250 MDPs",
        "jbrl run experiments/deep-on-mdps.toml",
        "0.5 h of 1 core",
    ),
    "tabular": (
        "Tabular learners on small environments",
        "mean of an agent with parameters in an experiment",
        "jbrl run experiments/tabular.toml",
        "not kept",
    ),
    "jordan2020": (
        "Jordan et al. 2020, played again",
        "score of one trial, with the hyperparameters drawn for it",
        "jbrl run experiments/jordan.toml, in pieces",
        "by piece in jordan/pieces.csv",
    ),
    "jordan2020-end": (
        "The same trials at the end of life",
        "mean return of the episodes in which a trial learns, and of 30 more with its final policy",
        "jbrl run experiments/jordan-end.toml",
        "not kept",
    ),
    "jordan2020-beside": (
        "Other agents on the environments of Jordan et al. 2020",
        "74 units of up to 50 trials",
        "jbrl run experiments/jordan-beside.toml",
        "0.3 h of 1 core",
    ),
    "bsuite": (
        "Logs of DQN, ActorCritic and PPO on all 468 settings of bsuite",
        "one logged episode",
        "jbrl run experiments/bsuite-agents.toml",
        "not kept",
    ),
    "bsuite-recurrent": (
        "Logs of RecurrentActorCritic on bsuite",
        "one logged episode",
        "jbrl run experiments/bsuite-recurrent.toml",
        "not kept",
    ),
    "bsuite-seeds": (
        "Logs of several seeds on bsuite's testing sweep",
        "one logged episode",
        "jbrl run experiments/bsuite-seeds.toml",
        "not kept",
    ),
    "bsuite-exploration": (
        "Logs of BootDQN on deep sea",
        "one logged episode",
        "jbrl run experiments/bsuite-exploration.toml",
        "not kept",
    ),
    "bsuite-reference": (
        "Logs of Random and Scripted on all 468 settings of bsuite",
        "one logged episode",
        "jbrl run experiments/bsuite.toml",
        "not kept",
    ),
}
COLUMNS = {
    "score": "discounted return of a lifetime, or the mean return of its episodes",
    "unit": "number of the environment drawn; agents meet the same ones",
    "online_seconds": "seconds of a decision, amortised over the lifetimes played at once",
    "offline_seconds": "seconds before the first decision, without compilation",
    "compile_seconds": "seconds of compilation",
    "latency_seconds": "seconds of a compiled lifetime played alone, divided by its decisions",
    "total_regret": "regret since the first episode",
    "total_return": "return since the first episode",
    "life": "mean return of the episodes in which the agent learns",
    "end": "mean return of 30 more episodes with the final policy",
}
TYPES = {"b": "sc:Boolean", "i": "sc:Integer", "I": "sc:Integer", "f": "sc:Float", "F": "sc:Float"}
CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "column": "cr:column",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "recordSet": "cr:recordSet",
    "sha256": "cr:sha256",
    "source": "cr:source",
}


def files_of(name: str) -> list[Path]:
    """Return the files of a dataset."""
    place = ROOT / DATASETS[name]
    return sorted(file for file in place.iterdir()) if place.is_dir() else [place]


def read(file: Path) -> pd.DataFrame:
    """Read a table."""
    return pd.read_csv(file) if file.suffix == ".csv" else pd.read_parquet(file)


def record_set(name: str, file: Path) -> dict[str, Any]:
    """Describe the columns of one table."""
    where = file.relative_to(ROOT).as_posix()
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{where}/{column}",
            "name": column,
            "description": COLUMNS.get(column, column.replace("_", " ")),
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
        ".parquet": "application/vnd.apache.parquet",
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
        "license": "https://spdx.org/licenses/MIT",
        "creator": {"@type": "sc:Organization", "name": "The jbrl developers"},
        "citeAs": "CITATION.cff of jbrl, and the papers that `jbrl cite NAME` prints",
        "distribution": [file_object(file) for file in (*(file for _, file in files), *policies)],
        "recordSet": [record_set(name, file) for name, file in files if file.suffix != ".json"],
    }


def card() -> str:
    """Return the data card."""
    rows = []
    for name, (title, row, command, hours) in ABOUT.items():
        study = next((file for file in files_of(name) if file.name == "study.json"), None)
        made = "versions with the rows, or not kept"
        if study:
            about = json.loads(study.read_text(encoding="utf-8"))
            versions = about["versions"]
            commit, *changed = versions.get("commit", "not kept").split("-")
            commit = f"commit {commit[:9]}{' with changes' if changed else ''}"
            made = f"{commit}, jax {versions['jax']}, {about['machine']['processor']}"
        rows.append(f"| `{name}` | {title}: {row} | `{command}` | {made} | {hours} |")
    columns = [f"- `{column}`: {meaning}" for column, meaning in COLUMNS.items()]
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
            *columns,
            "",
            "Scores of studies are rounded to 3 decimals. Missing values: the agent or setting has",
            "no such quantity. Units of `castronovo2016-cells` with the status `missing` have",
            "scores: they were played beside other work, and their times were not kept.",
            "",
        ]
    )


if __name__ == "__main__":
    text = json.dumps(croissant(), ensure_ascii=False)
    (ROOT / METADATA).write_text(text + "\n", encoding="utf-8")
    (ROOT / "README.md").write_text(card(), encoding="utf-8")
