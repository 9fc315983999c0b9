"""The example of the page «Write your own agent» is played as a study and from Python, and its
mistakes are said as the page says.
"""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
STUDY = """
[study]
name = "Mistakes"
n_environments = 3
horizon = 5

[[experiments]]
name = "GC"
problem = "GC"

[[agents]]
"""
CHOICE = "return jbrl.sampling.choose_maximiser(worth, jbrl.sampling.uniforms(key)[0]), state"
BONUS = (
    'bonus: float = jbrl.parameter(1.0, "worth of an action never tried, in units of return", '
    "low=0)"
)
# What is changed in the file, and the message that follows. The study is refused, or its
# unit fails.
REFUSED = [
    (
        "@jbrl.register_agent",
        "# ",
        (
            "'curious_q:CuriousQ' is not registered: write @register_agent(\"CuriousQ\") above "
            "the class"
        ),
    ),
    (
        BONUS,
        "bonus: float",
        (
            "'curious_q:CuriousQ': field 'bonus' has no default: expected bonus: float = "
            'parameter(0.1, "what it means")'
        ),
    ),
    # in the study
    ("", "bonus = -1.0", "(curious_q:CuriousQ): bonus = -1.0: expected a number from 0"),
    (
        CHOICE,
        "return jnp.int32(__import__('random').randrange(3)), state",
        "curious_q:CuriousQ: act uses random numbers or times of the host",
    ),
]
FAILED = [
    (
        CHOICE,
        "return worth.max(), state",
        "CuriousQ.act returned float32[]: expected one action as a scalar int32",
    ),
    (
        CHOICE,
        "return jnp.int32(7), state",
        "CuriousQ, on MDP 0 of 'GC': chose an action outside 0..2",
    ),
    ("return Table(q, ", "return Table(jnp.nan * q, ", "CuriousQ.train returned NaN in .q"),
    (
        CHOICE,
        "return jnp.int32(0), Table(jnp.nan * state.q, state.visits, state.discount)",
        "CuriousQ, on MDP 0 of 'GC': NaN in .q of its state: expected numbers or infinities",
    ),
    (
        "Table(state.q.at[x, action].add(rate * error)",
        "Table(state.q[0]",
        "CuriousQ.observe returned float32[3] in .q as its state, where float32[5,3] was before: "
        "expected a state that keeps its fields, shapes and dtypes",
    ),
]
PROGRAM = """
import json, sys
import jbrl
found = []
for number in range(int(sys.argv[1])):
    try:
        results = jbrl.run(f"changed{number}.toml", f"out{number}")
        found.append(results.units["reason"].item())
    except jbrl.JbrlError as error:
        found.append(str(error))
print(json.dumps([text.replace(f"changed{number}", "curious_q") for number, text in enumerate(found)]))
"""  # noqa: E501


def run(*arguments, folder=None):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    study = DOCS / "examples" / "curious_q.toml"
    run("-m", "jbrl", "run", study, "--out", out, "--quiet", "--set", "study.horizon=100")
    rows = list(csv.DictReader(io.StringIO(run("-m", "jbrl", "scores", out, "--format", "csv"))))
    return {(row["algorithm"], json.loads(row["parameters"]).get("bonus")): row for row in rows}


@pytest.mark.slow
def test_its_study_runs_and_learns(scores):
    assert {row["status"] for row in scores.values()} == {"done"}
    assert len(scores) == 4
    random, own = scores["Random", None], scores["CuriousQ", 0.0]
    # Means of 500 returns: 4 standard errors of their difference at least.
    error = (float(random["ci95"]) ** 2 + float(own["ci95"]) ** 2) ** 0.5 / 1.96
    assert float(own["mean"]) - float(random["mean"]) > 4 * error


@pytest.mark.slow
def test_play_gives_what_the_study_gives(scores):
    program = (
        "import jbrl; from curious_q import CuriousQ; print(jbrl.play(CuriousQ(bonus=5.0), "
        "prior='GC', n_environments=500, horizon=100).returns.mean())"
    )
    found = float(run("-c", program, folder=DOCS / "examples"))
    assert found == pytest.approx(float(scores["CuriousQ", 5.0]["mean"]), rel=1e-12)


def test_what_it_needs_is_said_where_it_is_not_offered():
    program = (
        "import jbrl; from curious_q import CuriousQ\n"
        "try:\n"
        "    jbrl.play(CuriousQ(), test='Chain-10d')\nexcept jbrl.JbrlError as error:\n"
        "    print(error)"
    )
    message = run("-c", program, folder=DOCS / "examples")
    assert message in (DOCS / "write-your-own-agent.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_mistakes_are_said_as_the_page_says(tmp_path):
    source = (DOCS / "examples" / "curious_q.py").read_text(encoding="utf-8")
    page = (DOCS / "write-your-own-agent.md").read_text(encoding="utf-8")
    cases = [*REFUSED, *FAILED]
    for number, (old, new, _) in enumerate(cases):
        assert old in source
        changed = source.replace(old, new) if old else source
        (tmp_path / f"changed{number}.py").write_text(
            changed.replace('("CuriousQ"', f'("CuriousQ{number}"'), encoding="utf-8"
        )
        study = f'{STUDY}algorithm = "changed{number}:CuriousQ"\n{"" if old else new}\n'
        (tmp_path / f"changed{number}.toml").write_text(study, encoding="utf-8")
    found = json.loads(run("-c", PROGRAM, len(cases), folder=tmp_path))
    for number, (text, (_, _, message)) in enumerate(zip(found, cases, strict=True)):
        assert message in text.replace(f"CuriousQ{number}", "CuriousQ")
    shown = re.findall(r"^\| .* \| `(.*)` \|$", page, re.MULTILINE)
    assert shown and set(shown) <= {message for _, _, message in cases}
