"""Run a study and read its results, from Python."""

import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError, as_path
from jbrl.base.schema import AGENT
from jbrl.stats.brackets import of_experiments, with_digests
from jbrl.stats.table import agent_names, check_returns, factor95, named_of, oracles_of, summarise
from jbrl.study.storage.archive import Archive, write_archive
from jbrl.study.storage.store import Store
from jbrl.study.storage.tables import ALONE, LATENCY, PROCESSOR, SPREADS, Outcomes

if TYPE_CHECKING:
    from jbrl.play.offline import Learned
    from jbrl.report.files import Form
    from jbrl.report.sections import Section

SCORES = (
    *("experiment", "prior", "test", "algorithm", "parameters", "n", "mean", "std", "ci95"),
    *("offline_seconds", "online_seconds", *LATENCY, "compile_seconds"),
    *(*SPREADS, *PROCESSOR, "device", "seed", "status"),
)
# of a lifetime, as agents count them that go on with NaN
COUNTS_OF_NAN = ("skipped_updates", "undefined_steps")
SHOWN = 6  # experiments whose best agents a notebook shows


class Results:
    """The results of a study in one directory, or in an archive of it, read once and kept.

    Raises:
      JbrlError: `folder` holds no results of a study.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = as_path("folder", folder)
        self.store: Store | Archive = Archive(folder) if Archive.is_one(folder) else Store(folder)
        self.manifest = self.store.manifest()

    @cached_property
    def _outcomes(self) -> Outcomes | Archive:
        """All results, each file read once."""
        return self.store.read()

    @cached_property
    def returns(self) -> pd.DataFrame:
        """The score table: one row per environment of each finished unit (experiment, algorithm,
        parameters, unit, seed, score).
        """
        return self._outcomes.returns()

    @cached_property
    def units(self) -> pd.DataFrame:
        """One row per unit, in the order of the study, without statistics; column `reason` says why
        a unit failed.
        """
        return self._outcomes.units()

    @cached_property
    def strategies(self) -> pd.DataFrame:
        """Strategies that agents which search have tried on each prior, the most pulled first, and
        stretches of trainings, the first one first (`Store.strategies`), with `ci95` of the mean.
        """
        table = self.store.strategies()
        pulls = table["pulls"].clip(lower=1)
        return table.assign(ci95=factor95(pulls) * table["std"] / np.sqrt(pulls))

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row per unit, in the order of the study, columns `SCORES` (`ALONE` where results
        hold it); missing and failed units have no mean.
        """
        numbered = self._outcomes.numbered()
        if not np.isfinite(numbered["score"]).all():
            check_returns(self.returns)  # which names the row
        means = summarise(numbered, by=["row"]).set_index("row").drop(columns="n")
        earlier = [ALONE] if ALONE in self.units.columns else []
        return self.units.join(means)[[*SCORES, *earlier]]

    def score_table(
        self,
        *,
        oracles: bool = False,
        trials: bool = False,
        names: Mapping[tuple[str, str], str] | None = None,
    ) -> pd.DataFrame:
        """Return the scores as any score table: columns algorithm, environment, score.

        An environment is an experiment. Several settings of an algorithm are several algorithms,
        whose names say in which parameters they differ.

        Args:
          oracles: keep algorithms that see the environment itself, the true MDP.
          trials: add the columns unit and seed, which distinguish trials.
          names: of algorithms with their parameters (default: `agent_names` of these results).
        """
        returns = self.returns
        if not oracles:
            returns = returns[~returns["algorithm"].isin(oracles_of(self.manifest))]
        agents = list(zip(returns["algorithm"], returns["parameters"], strict=True))
        names = names or agent_names(agents)
        table = returns.assign(
            algorithm=[names[agent] for agent in agents], environment=returns["experiment"]
        )
        extra = ("unit", "seed") if trials else ()
        return table[["algorithm", "environment", "score", *extra]].reset_index(drop=True)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """Scores of algorithms that draw their parameters, one row per lifetime, with a column for
        each parameter that is drawn (`jbrl.study.file.trials`).

        `jbrl.stats.sensitivity` reads it. Units of which lifetimes have failed are among them,
        with NaN for those; an archive has none of these units.

        Raises:
          JbrlError: no algorithm of the study draws a parameter, or one is not known here.
        """
        from jbrl.study.file import trials

        def metrics(id: str) -> dict[str, np.ndarray]:
            return {} if isinstance(self.store, Archive) else self.store.metrics(id)

        read = self._outcomes
        returns = read.returns(failed=True) if isinstance(read, Outcomes) else read.returns()
        return trials(self.manifest, returns, metrics, str(self.store.folder))

    def trajectories(
        self, experiment: str, algorithm: str, seed: int | None = None, **parameters: Any
    ) -> dict[str, np.ndarray]:
        """Return the recorded trajectories of one unit: states [N, T+1] int32, actions [N, T]
        int32, rewards [N, T] float32.

        Raises:
          JbrlError: not exactly one unit fits, or its trajectories were not recorded.
        """
        return self.store.trajectories(self._unit(experiment, algorithm, seed, parameters)["id"])

    def metrics(
        self, experiment: str, algorithm: str, seed: int | None = None, **parameters: Any
    ) -> dict[str, np.ndarray]:
        """Return the records of one unit beside its scores, [N] float64 by name: episodes, and the
        counters of its environment.

        Raises:
          JbrlError: not exactly one unit fits.
        """
        return self.store.metrics(self._unit(experiment, algorithm, seed, parameters)["id"])

    def undefined(self, id: str) -> np.ndarray | None:
        """Return for each lifetime of a unit whether its agent has met NaN and has gone on, [N]
        bool; None where that is not known, as of agents that do not count it.
        """
        metrics = {} if isinstance(self.store, Archive) else self.store.metrics(id)
        counts = [metrics[name] > 0 for name in COUNTS_OF_NAN if name in metrics]
        return np.any(counts, axis=0) if counts else None

    def learned(
        self, experiment: str, algorithm: str, seed: int | None = None, **parameters: Any
    ) -> "Learned":
        """Return the findings of an agent that searches on its prior: `strategy` is an agent that
        plays it, `arms` a table of all that was tried.

        Raises:
          JbrlError: not exactly one unit fits, or it has found nothing.
        """
        from jbrl.play.offline import Learned

        id = self._unit(experiment, algorithm, seed, parameters).get("knowledge")
        knowledge = self.store.knowledge(id) if id else None
        if knowledge is None:
            raise JbrlError(
                f"{self.store.folder}: {algorithm} in {experiment} has found nothing: it does not "
                "search, or has not been run"
            )
        return Learned.read(knowledge.header["learned"], knowledge.arrays)

    def learned_on(self, digest: str) -> "dict[str, Learned]":
        """Return what searches on the distribution with this digest have found, by the algorithm,
        the trajectories that it made use of, and the number of the search.
        """
        from jbrl.play.offline import Learned

        units = self.units
        on_it = (units["status"] == "done") & (units["prior_digest"] == digest)
        listed = itertools.compress(self.manifest["units"], on_it)
        names = {u["knowledge"]: u["algorithm"] for u in listed if u.get("knowledge")}
        every = {}
        for id, algorithm in names.items():
            knowledge = self.store.knowledge(id)
            if knowledge is not None:
                learned = Learned.read(knowledge.header["learned"], knowledge.arrays)
                every[f"{algorithm} by {learned.consumed:,} lifetimes, {id[:8]}"] = learned
        return every

    def _unit(
        self, experiment: str, algorithm: str, seed: int | None, parameters: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the only unit that fits."""
        asked: dict[str, Any] = {"experiment": experiment, "algorithm": algorithm}
        asked |= {} if seed is None else {"seed": seed}
        units = self.manifest["units"]
        fits = [unit for unit in units if unit | asked == unit and _holds(unit, parameters)]
        if len(fits) != 1:
            raise JbrlError(
                f"{len(fits)} units fit {asked | parameters}: expected exactly one; name its "
                "experiment, algorithm, parameters and seed"
            )
        return fits[0]

    def report(self, out: str | Path | None = None, form: "Form" = "html") -> Path:
        """Write the report to `out` (default: `report` beside the results); return the path of its
        page, its LaTeX source or its Markdown.

        Args:
          form: "html"; "latex" and "markdown" get a folder of that name in `out`.

        Raises:
          JbrlError: no such form, or `out` cannot be written.
        """
        from jbrl.report.chapters import write_report

        return write_report(
            self._pooled(),
            self.returns,
            with_digests(self.manifest, self.units),
            as_path("out", out) if out else self.store.folder / "report",
            self.strategies,
            form,
            self._metrics,
            self.units,
        )

    def _metrics(self, experiment: str, algorithm: str, parameters: str) -> dict[str, np.ndarray]:
        """Return the records of one agent beside its scores, of all seeds, [N] float64 by name."""
        if isinstance(self.store, Archive):
            return {}
        agent = pd.Series((experiment, algorithm, parameters), index=list(AGENT))
        own = (self.units["status"] == "done") & (self.units[list(AGENT)] == agent).all(axis=1)
        listed = itertools.compress(self.manifest["units"], own)
        seeds = [self.store.metrics(unit["id"]) for unit in listed]
        names = [name for name, values in seeds[0].items() if values.ndim == 1] if seeds else []
        return {name: np.concatenate([metrics[name] for metrics in seeds]) for name in names}

    def sections(self) -> list["Section"]:
        """Return the experiments as the report shows them: agents in order, with the tests between
        them; seeds taken together. `jbrl.plot` draws them.

        Raises:
          JbrlError: a score is not finite.
        """
        from jbrl.report.sections import sections
        from jbrl.report.text import rules_of

        manifest = self.manifest
        return sections(
            self._pooled(),
            self.returns,
            oracles_of(manifest),
            rules_of(manifest),
            of_experiments(with_digests(manifest, self.units)),
            named=named_of(manifest),
        )

    def _pooled(self) -> pd.DataFrame:
        """Return one row per agent: the environments of all seeds taken together, times averaged
        over seeds.
        """
        scores = self.scores
        if scores["seed"].nunique() == 1:
            return scores
        times = (name for name in SCORES if name.endswith("_seconds") or name in SPREADS)
        seconds = dict.fromkeys(times, "mean")
        first = dict.fromkeys(("prior", "test", "seed"), "first") | {"device": _all}
        groups = scores.groupby(list(AGENT), sort=False)
        rows = groups.agg({**first, **seconds, "status": _worst}).reset_index()
        rows = rows.merge(summarise(self.returns), on=list(AGENT), how="left")
        return rows.fillna({"n": 0})[list(SCORES)]

    def archive(self, folder: str | Path, *, decimals: int | None = None) -> list[Path]:
        """Write the scores as three small files to `folder`, which `Results` reads like this
        directory; return the paths.

        Args:
          decimals: digits after the point of each return; default: all.

        Raises:
          JbrlError: this is an archive, `decimals` is negative, or `folder` cannot be used.
        """
        if isinstance(self.store, Archive):
            raise JbrlError(f"{self.store.folder}: is an archive already: copy it")
        return write_archive(self.store, folder, decimals=decimals)

    def __repr__(self) -> str:
        """Return name, place and progress."""
        count = self.scores["status"].value_counts()
        return (
            f"<Results of '{self.manifest['study']['name']}' in {self.store.folder}: "
            f"{', '.join(f'{n} {s}' for s, n in count.items())}>"
        )

    def _repr_html_(self) -> str:
        """Tables of the best agents and a figure, for notebooks; the figure is of the first
        experiment.
        """
        from jbrl.base.notebook import table
        from jbrl.plot import svg
        from jbrl.report.text import count, seconds_text

        times = ["offline_seconds", "online_seconds"]
        begun = [section for section in self.sections() if len(section.done)]
        blocks = [f"<p>{escape(repr(self)[1:-1])}</p>"]
        for section in begun[:SHOWN]:
            rows = [
                (
                    row["algorithm"],
                    row["setting"],
                    section.score(row),
                    *map(seconds_text, row[times]),
                )
                for part in (section.champions, section.oracles)
                for _, row in part.iterrows()
            ]
            heads = ("Best agent", "Parameters", section.terms.mean, "Offline", "Online")
            blocks.append(table(heads, rows, section.name))
        if len(begun) > SHOWN:
            blocks.append(f"<p>{count(len(begun) - SHOWN, 'more experiment')}: `.scores`</p>")
        return "".join([*blocks, *map(svg, begun[:1])])


def _all(devices: pd.Series) -> str | None:
    return ", ".join(dict.fromkeys(devices.dropna())) or None


def _worst(statuses: pd.Series) -> str:
    return next((status for status in ("failed", "missing") if (statuses == status).any()), "done")


def _holds(unit: dict[str, Any], parameters: dict[str, Any]) -> bool:
    values = json.loads(unit["parameters"])
    return values | parameters == values


def run(
    study: str | Path | dict[str, Any],
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    only: str | None = None,
    shard: str | None = None,
    devices: str | int | Sequence[int] | None = None,
    memory: str | int | None = None,
    stack: bool | None = None,
    progress: bool = True,
) -> Results:
    """Run a study, or what is left of it, as `jbrl run` does, silently.

    All devices are used; JAX that has started keeps those it has.

    Args:
      study: a TOML file, or the same tables as a dict: `{"study": {...}, "experiments": [{...}],
        "agents": [{...}]}`.
      out: directory of the results.
      overrides: fields of `[study]` to replace, each `"study.field=value"`.
      only: regular expression that the labels of units must match.
      shard: `"I/N"`, the I-th of N parts.
      devices: how many CPU cores or accelerators to use, or which accelerators (`[0, 2]`
        or `"0,2"`).
      memory: how much of it to use, `"8GiB"` or a number of bytes: of each accelerator, or of the
        machine when it plays on CPUs.
      stack: play several units at once; None: where it helps.
      progress: show a bar if a notebook is running.

    Returns: the results in `out`. Units that failed are listed as such in `.scores`.

    Raises:
      JbrlError: something is not accepted, `out` holds another study or cannot be written.
    """
    from jbrl.play.resources import choose
    from jbrl.study.plan import plan
    from jbrl.study.progress import NotebookProgress

    resources = choose(devices, memory, stack)
    chosen = plan(study, out, overrides=overrides, only=only, shard=shard)
    chosen.execute(NotebookProgress() if progress else None, resources)
    return Results(out)
