"""Score tables in memory: what is refused, and parts of them."""

import numpy as np
import pandas as pd
import pytest

from jbrl.base.errors import JbrlError
from jbrl.stats.score_table import check_score_table, restrict
from tests.stats.tables import SCORES


def test_a_table_in_memory_obeys_the_same_rules() -> None:
    pd.testing.assert_frame_equal(check_score_table(SCORES), SCORES, check_dtype=False)
    with pytest.raises(JbrlError, match="score table: no column 'score'"):
        check_score_table(SCORES.drop(columns="score"))
    with pytest.raises(JbrlError, match=r"mine: row 2 .*score = nan"):
        check_score_table(SCORES.assign(score=[1.0, np.nan, 2.0, 3.0]), name="mine")


def test_restricting_keeps_the_order_of_the_names() -> None:
    assert restrict(SCORES, algorithms=["1.10", "A"])["algorithm"].tolist() == ["1.10", "A"]
    assert restrict(SCORES, environments=["y"])["algorithm"].tolist() == ["NA", "1.10"]
    with pytest.raises(JbrlError, match=r"--environments: unknown environment 'z' \(known: x, y\)"):
        restrict(SCORES, environments=["z"])
