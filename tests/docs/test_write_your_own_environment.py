"""The example of the page «Write your own environment» is played as a study and from Python, and
its mistakes are said as the page says.
"""

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
STUDY = """
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
# What is changed in the file, and the message that follows: (what stands there, what stands there
# instead, the message).
TRACED = [
    (
        '@jbrl.register_environment("Corridor")',
        "",
        'is not registered: write @register_environment("Corridor") above the class',
    ),
    (
        ", static=True",
        "",
        (
            ": spec.observation = Discrete(n=array(6, dtype=int32)): expected n to be an integer "
            "from 1, made of static fields"
        ),
    ),
    (
        "self.wind * jax.random.uniform(key)",
        "jnp.zeros(2)",
        (
            ": perturb returned another structure or other shapes: expected those of the "
            "environment itself"
        ),
    ),
    (
        "jbrl.Spec(jbrl.Discrete(self.length)",
        "jbrl.Spec(jbrl.Box((1,))",
        ": reset returned an observation int32[]: expected float32[1], as spec says (Box(1,))",
    ),
    (
        "state.steps + 1",
        "state.steps + 1.0",
        (
            ": step returned a state (int32[], float32[], int32[]): expected (int32[], int32[], "
            "int32[]), as reset returns it"
        ),
    ),
    (
        "jnp.float32(-1)",
        "jnp.int32(-1)",
        ": step returned reward int32[]: expected a scalar float32",
    ),
    (
        "gust = (",
        "pushed = 1 if self.wind > 0 else 0\n        gust = (",
        (
            ": step: TracerBoolConversionError: Attempted boolean conversion of traced array with "
            "shape bool[]."
        ),
    ),
    (
        "jbrl.sampling.uniforms(key)[0]",
        "__import__('random').random()",
        ": step uses random numbers or times of the host",
    ),
    (
        "state.gusts.astype(jnp.float32)",
        "state.gusts",
        ": metrics returned gusts int32[]: expected a scalar float32",
    ),
]
NAMED = [
    ("(length=1)", ": length = 1: expected an integer from 2 up to 1000"),
    ("(lenght=8)", ": unknown parameter 'lenght'; did you mean 'length'? (known: length, wind)"),
]
# Numbers depend on the random numbers of JAX: they are not compared.
PLAYED = [
    (
        "jnp.float32(-1)",
        "jnp.where(after.steps > 2, jnp.nan, -1.0)",
        ", lifetime 0, step 8 (episode 1): the reward is not a finite number",
    ),
    (
        "jbrl.Step(cell, ",
        "jbrl.Step(cell + 1, ",
        ", lifetime 0, step 58 (episode 2): the observation is NaN, infinite or out of range",
    ),
    (
        "arrived, too_long",
        "arrived, arrived",
        (
            ", lifetime 0, step 58 (episode 2): the episode is both terminated and truncated: "
            "expected one of them at most"
        ),
    ),
    (
        "arrived, too_long",
        "arrived & False, too_long & False",
        (
            ", lifetime 0, step 100000 (episode 1): no end after 100000 steps: expected "
            "terminated or truncated before, or max_steps of the lifetime to be higher"
        ),
    ),
]
PROGRAM = """
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corridor")
    shutil.copy(DOCS / "examples" / "corridor.py", folder)
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    return folder


def python(*arguments: object, folder: Path) -> str:
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
def scores(folder: Path) -> dict[tuple[str, float], dict[str, str]]:
    python("-m", "jbrl", "run", "study.toml", "--out", "out", "--quiet", folder=folder)
    rows = csv.DictReader(
        io.StringIO(python("-m", "jbrl", "scores", "out", "--format", "csv", folder=folder))
    )
    return {(row["experiment"], json.loads(row["parameters"])["alpha"]): row for row in rows}


@pytest.mark.slow
def test_study_is_played_and_learning_helps(
    scores: dict[tuple[str, float], dict[str, str]],
) -> None:
    assert {row["status"] for row in scores.values()} == {"done"}
    assert len(scores) == 4
    for experiment in ("short", "wind told wrong"):
        learned, not_learned = (float(scores[experiment, alpha]["mean"]) for alpha in (0.5, 0.0))
        assert -120 <= not_learned < learned / 2  # it goes left all the time
        assert learned <= -5
    # The prior is another one, the environments are the same, and Q-learning reads nothing from the
    # prior but sizes.
    assert scores["short", 0.5]["mean"] == scores["wind told wrong", 0.5]["mean"]


@pytest.mark.slow
def test_play_gives_what_the_study_gives(
    folder: Path, scores: dict[tuple[str, float], dict[str, str]]
) -> None:
    program = (
        "import jbrl; agent = jbrl.AGENTS['Q-learning'].agent(alpha=0.5); played = "
        "jbrl.play(agent, test='corridor:Corridor', n_environments=24, episodes=10); "
        "print(played.returns.mean())"
    )
    assert float(python("-c", program, folder=folder)) == pytest.approx(
        float(scores["short", 0.5]["mean"]), rel=1e-12
    )


@pytest.mark.slow
def test_changed_file_is_played_anew(
    folder: Path, scores: dict[tuple[str, float], dict[str, str]]
) -> None:
    file = folder / "corridor.py"
    before = file.read_text(encoding="utf-8")
    assert "(4 done already)" in python(
        "-m", "jbrl", "run", "study.toml", "--out", "out", "--dry-run", folder=folder
    )
    try:
        file.write_text(before.replace("20 * self.length", "30 * self.length"), encoding="utf-8")
        left = python("-m", "jbrl", "run", "study.toml", "--out", "out", "--dry-run", folder=folder)
    finally:
        file.write_text(before, encoding="utf-8")
    assert "done already" not in left


@pytest.mark.slow
def test_mistakes_are_said_as_the_page_says(folder: Path) -> None:
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
    found = json.loads(python("-c", PROGRAM, json.dumps(asked), folder=folder))
    page = (DOCS / "write-your-own-environment.md").read_text(encoding="utf-8")
    wholes = [
        f"environment 'corridor:Corridor'{text if text.startswith((':', ',')) else ' ' + text}"
        for text in expected
    ]
    for message, whole, (_, _, played) in zip(found, wholes, asked, strict=True):
        if played:
            assert _without_numbers(message) == _without_numbers(whole)
        else:  # JAX goes on for some lines, and the place in the file follows
            assert message.startswith(whole)
    shown = re.findall(r"^\| .* \| `(environment.*)` \|$", page, re.MULTILINE)
    assert shown and set(shown) <= set(wholes)


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "#", text)
