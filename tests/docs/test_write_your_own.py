"""The examples of the pages «Write your own …» run as studies and from Python, their commands and
programs as they stand, and their mistakes are said as the pages say.
"""

import csv
import io
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.terminal import output_of

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "write-your-own-environment.md": ("corridor.py", "corridor.toml"),
    "write-your-own-agent.md": ("curious_q.py", "curious_q.toml"),
}
AGENT_STUDY = """
[study]
name = "Mistakes"
n_environments = 3
horizon = 5

[[experiments]]
name = "GC"
problem = "GC"

[[agents]]
"""
CORRIDORS = """
[study]
name = "Two corridors"
n_environments = 24

[[experiments]]
name = "short"
problem = "corridor:Corridor"
episodes = 10

[[experiments]]
name = "wind told wrong"
problem = "corridor:Corridor"
prior = "corridor:Corridor(wind=0.1)"
episodes = 10

[[agents]]
algorithm = "Q-learning"
alpha = [0.0, 0.5]
"""
CHOICE = "return jbrl.sampling.choose_maximiser(worth, jbrl.sampling.uniforms(key)[0]), state"
# What is changed in the file, and the message that follows. The study is refused, or its
# unit fails.
AGENT_MISTAKES = [
    (
        "@jbrl.register_agent",
        "# ",
        "'curious_q:CuriousQ' is not registered: write @register_agent(\"CuriousQ\") above "
        "the class",
    ),
    # in the study
    ("", "bonus = -1.0", "(curious_q:CuriousQ): bonus = -1.0: expected a number from 0"),
    (
        CHOICE,
        "return jnp.int32(0)",
        r"curious_q.py, line 37) returned int32[]: expected the action and the state, also where",
    ),
    (
        CHOICE,
        "return (jnp.int32(0) if worth[0] > 0 else jnp.int32(1)), state",
        "in CuriousQ.act): expected jnp.where in place of Python's if, and, or",
    ),
    (
        CHOICE,
        "return jnp.int32(7), state",
        "CuriousQ, on MDP 0 of 'GC': chose an action outside 0..2",
    ),
    (
        "Table(state.q.at[x, action].add(rate * error)",
        "Table(state.q[0]",
        "curious_q.py, line 41) returned float32[3] in .q as its state, where float32[5,3] was "
        "before: expected a state that keeps its fields, shapes and dtypes",
    ),
]
# What stands in the file, what stands there instead, the message.
TRACED = [
    (
        ", static=True",
        "",
        ": spec.observation = Discrete(n=array(6, dtype=int32)): expected n to be an integer "
        "from 1 to 2147483647, made of static fields",
    ),
    (
        "state.steps + 1",
        "state.steps + 1.0",
        ": step returned a state (int32[], float32[], int32[]): expected (int32[], int32[], "
        "int32[]), as reset returns it",
    ),
    (
        "gust = (",
        "pushed = 1 if self.wind > 0 else 0\n        gust = (",
        (": step: Python needs the value of an array that is known only when the program runs ("),
    ),
    (
        "jbrl.sampling.uniforms(key)[0]",
        "__import__('random').random()",
        ": step uses random numbers or times of the host",
    ),
]
NAMED = [
    ("(lenght=8)", ": unknown parameter 'lenght'; did you mean 'length'? (known: length, wind)")
]
# Numbers depend on the random numbers of JAX: they are not compared.
PLAYED = [
    (
        "arrived, too_long",
        "arrived, arrived",
        ", lifetime 0, step 58 (episode 2): the episode is both terminated and truncated: "
        "expected one of them at most",
    )
]
AGENT_PROGRAM = """
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
ENVIRONMENT_PROGRAM = """
import json, sys
import jbrl
found = []
for module, settings, played in json.loads(sys.argv[1]):
    name = f"{module}:Corridor{settings}"
    try:
        if played:
            jbrl.play(jbrl.AGENTS["Random"].agent(), test=name, n_environments=2)
        else:
            jbrl.problem(name)
        found.append("no message")
    except jbrl.JbrlError as error:
        found.append(str(error).replace(f"{module}:", "corridor:"))
print(json.dumps(found))
"""

every_page = pytest.mark.parametrize("name", PAGES)


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    """Return the code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(name), re.MULTILINE | re.DOTALL)


def shown_messages(name: str) -> set[str]:
    """Return the messages in the tables of a page."""
    return set(re.findall(r"^\| .* \| `(.*[:(].*)` \|$", text_of(name), re.MULTILINE))


def run(*arguments: object, folder: Path = DOCS / "examples") -> str:
    return output_of(sys.executable, *arguments, timeout=600, cwd=folder)


def scores_of(study: Path, *options: str) -> list[dict[str, str]]:
    """Play a study beside its file, and return the rows of its scores."""
    run("-m", "jbrl", "run", study, "--out", study.stem, "--quiet", *options, folder=study.parent)
    table = run("-m", "jbrl", "scores", study.stem, "--format", "csv", folder=study.parent)
    return list(csv.DictReader(io.StringIO(table)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    for file in (file for files in PAGES.values() for file in files):
        shutil.copy(DOCS / "examples" / file, folder)
    return folder


@pytest.fixture(scope="module")
def corridors(folder):
    (folder / "study.toml").write_text(CORRIDORS, encoding="utf-8")
    rows = scores_of(folder / "study.toml")
    return {(row["experiment"], json.loads(row["parameters"])["alpha"]): row for row in rows}


@every_page
def test_page_shows_the_files_that_run_and_these_import_jbrl_alone(name):
    for file in PAGES[name]:
        assert f"```{{literalinclude}} examples/{file}\n" in text_of(name)
        assert len(text_of(f"examples/{file}").splitlines()) <= 50
    source = text_of(f"examples/{PAGES[name][0]}")
    imported = re.findall(r"^(?:import|from) (\S+)", source, re.MULTILINE)
    assert set(imported) <= {"dataclasses", "jax", "jax.numpy", "jbrl"}


@pytest.mark.slow
@every_page
def test_commands_of_the_page_run(name, folder):
    commands = re.findall(r"^\$ jbrl (.*)$", "".join(blocks(name, "console")), re.MULTILINE)
    assert len(commands) >= 2
    for command in commands:
        run("-m", "jbrl", *shlex.split(command), folder=folder)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("write-your-own-environment.md", marks=pytest.mark.slow),
        "write-your-own-agent.md",
    ],
)
def test_programs_of_the_page_run(name, folder):
    programs = [text for text in blocks(name, "python") if text.startswith("import")]
    assert programs
    for program in programs:
        assert run("-c", program, folder=folder)


@pytest.mark.slow
def test_the_study_of_the_agent_learns_as_in_play(folder):
    rows = scores_of(folder / "curious_q.toml", "--set", "study.horizon=100")
    agents = {(row["algorithm"], json.loads(row["parameters"]).get("bonus")): row for row in rows}
    assert len(agents) == 4 and {row["status"] for row in rows} == {"done"}
    random, own = agents["Random", None], agents["CuriousQ", 0.0]
    # Means of 500 returns: 4 standard errors of their difference at least.
    error = (float(random["ci95"]) ** 2 + float(own["ci95"]) ** 2) ** 0.5 / 1.96
    assert float(own["mean"]) - float(random["mean"]) > 4 * error
    program = (
        "import jbrl; from curious_q import CuriousQ; print(jbrl.play(CuriousQ(bonus=5.0), "
        "prior='GC', n_environments=500, horizon=100).returns.mean())"
    )
    mean = float(agents["CuriousQ", 5.0]["mean"])
    assert float(run("-c", program)) == pytest.approx(mean, rel=1e-12)


def test_what_it_needs_is_said_where_it_is_not_offered():
    program = (
        "import jbrl; from curious_q import CuriousQ\n"
        "try:\n"
        "    jbrl.play(CuriousQ(), test='Chain-10d')\nexcept jbrl.JbrlError as error:\n"
        "    print(error)"
    )
    message = run("-c", program)
    assert message in text_of("write-your-own-agent.md")


@pytest.mark.slow
def test_mistakes_of_agents_are_said_as_the_page_says(tmp_path):
    source = text_of("examples/curious_q.py")
    for number, (old, new, _) in enumerate(AGENT_MISTAKES):
        assert old in source
        changed = source.replace(old, new) if old else source
        (tmp_path / f"changed{number}.py").write_text(
            changed.replace('("CuriousQ"', f'("CuriousQ{number}"'), encoding="utf-8"
        )
        study = f'{AGENT_STUDY}algorithm = "changed{number}:CuriousQ"\n{"" if old else new}\n'
        (tmp_path / f"changed{number}.toml").write_text(study, encoding="utf-8")
    found = json.loads(run("-c", AGENT_PROGRAM, len(AGENT_MISTAKES), folder=tmp_path))
    for number, (text, (_, _, message)) in enumerate(zip(found, AGENT_MISTAKES, strict=True)):
        assert message in text.replace(f"CuriousQ{number}", "CuriousQ")
    shown = shown_messages("write-your-own-agent.md")
    assert shown and shown <= {message for _, _, message in AGENT_MISTAKES}


@pytest.mark.slow
def test_the_study_of_the_environment_learns_as_in_play(folder, corridors):
    assert {row["status"] for row in corridors.values()} == {"done"}
    assert len(corridors) == 4
    for experiment in ("short", "wind told wrong"):
        learned, not_learned = (float(corridors[experiment, alpha]["mean"]) for alpha in (0.5, 0.0))
        assert -120 <= not_learned < learned / 2  # it goes left all the time
        assert learned <= -5
    # The prior is another one, the environments are the same, and Q-learning reads nothing from the
    # prior but sizes.
    assert corridors["short", 0.5]["mean"] == corridors["wind told wrong", 0.5]["mean"]
    program = (
        "import jbrl; agent = jbrl.agents.QLearning(alpha=0.5); print(jbrl.play(agent, "
        "test='corridor:Corridor', n_environments=24, episodes=10).returns.mean())"
    )
    mean = float(corridors["short", 0.5]["mean"])
    assert float(run("-c", program, folder=folder)) == pytest.approx(mean, rel=1e-12)


@pytest.mark.slow
def test_changed_file_is_played_anew(folder, corridors):
    file = folder / "corridor.py"
    before = file.read_text(encoding="utf-8")
    assert "(4 done already)" in run(
        "-m", "jbrl", "run", "study.toml", "--out", "study", "--dry-run", folder=folder
    )
    try:
        file.write_text(before.replace("20 * self.length", "30 * self.length"), encoding="utf-8")
        left = run("-m", "jbrl", "run", "study.toml", "--out", "study", "--dry-run", folder=folder)
    finally:
        file.write_text(before, encoding="utf-8")
    assert "done already" not in left


@pytest.mark.slow
def test_mistakes_of_environments_are_said_as_the_page_says(folder):
    source = (
        (folder / "corridor.py")
        .read_text(encoding="utf-8")
        .replace("jbrl.Episodes(50)", "jbrl.Episodes(50, max_steps=300)")
    )
    asked, expected = [], []
    for number, (old, new, message) in enumerate([*TRACED, *PLAYED]):
        assert old in source
        changed = source.replace(old, new).replace(
            'register_environment("Corridor")', f'register_environment("Corridor{number}")'
        )
        (folder / f"changed{number}.py").write_text(changed, encoding="utf-8")
        asked.append((f"changed{number}", "", number >= len(TRACED)))
        expected.append(message)
    asked += [("corridor", settings, False) for settings, _ in NAMED]
    expected += [message for _, message in NAMED]
    found = json.loads(run("-c", ENVIRONMENT_PROGRAM, json.dumps(asked), folder=folder))
    wholes = [
        f"environment 'corridor:Corridor'{text if text.startswith((':', ',')) else ' ' + text}"
        for text in expected
    ]
    for message, whole, (_, _, played) in zip(found, wholes, asked, strict=True):
        if played:
            assert _without_numbers(message) == _without_numbers(whole)
        else:  # JAX goes on for some lines, and the place in the file follows
            assert message.startswith(whole)
    shown = shown_messages("write-your-own-environment.md")
    assert shown and shown <= set(wholes)


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "#", text)
