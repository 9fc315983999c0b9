"""Mean returns agree with those published, at T = 250 and N = 500 or as many as were published, on
all six pairs of distributions.

A cell disagrees when it is more than 3 combined standard errors off: by chance once in 370 times,
so that one of the 52 would be in 13 % of all seeds, and one of the three searches in 1 %. The seed
is fixed.
"""

import importlib.util
from pathlib import Path

import pandas as pd
import pytest

SCRIPT = Path(__file__).parents[1] / "experiments" / "published.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("published", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_cells_are_there(script):
    cells = pd.concat([script.cells(), script.cells(long=True)])
    assert cells.groupby("source").size().to_dict() == {"C++": 25, "paper": 42}
    assert set(cells.experiment) == {"GC", "GDL", "Grid"}


@pytest.mark.slow
def test_means_agree_with_the_published_ones(script):
    table = pd.DataFrame(script.compare())
    assert len(table) == 52
    far = table[table["standard errors apart"].abs() > 3]
    assert far.empty, far.to_string()


@pytest.mark.slow
def test_means_of_searches_agree_with_the_published_ones(script):
    """Those with the larger budgets take hours: `experiments/published.py --long` plays them."""
    table = pd.DataFrame(script.compare(100, long=True, only=r"BFS3 K=1;|SBOSS epsilon=0\.1"))
    assert len(table) == 3
    far = table[table["standard errors apart"].abs() > 3]
    assert far.empty, far.to_string()
