"""The notebooks of the documentation run from their first cell to the last, and show tables,
figures and a bar of progress.
"""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def executed(name, folder):
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}
    ).execute()
    return notebook


def shown(notebook, kind):
    """Texts of a MIME type in the outputs of each cell that has any."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = [[o.data[kind] for o in cell.outputs if kind in o.get("data", {})] for cell in cells]
    return [texts for texts in found if texts]


def test_there_are_two():
    assert NAMES == ["quickstart", "your-agent"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the client, about ports and event loops
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_shows(name, tmp_path):
    notebook = executed(name, str(tmp_path))
    pages = "".join(text for texts in shown(notebook, "text/html") for text in texts)
    assert "lifetimes" in pages  # facts of one agent
    assert pages.count("Best agent") == 2  # a table for each experiment
    assert "<svg" in pages
    assert '<progress value="' in pages
    assert "units</code>" in pages  # the last thing that the bar says
    assert len(shown(notebook, "image/png")) == 2 + (name == "your-agent")
    texts = "".join(text for texts in shown(notebook, "text/plain") for text in texts)
    assert "<Played: lifetimes 200, mean score" in texts
    stored = (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    assert len(stored) < 400_000
