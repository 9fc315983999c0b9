"""The page of a comparison: shares of the Bayes-optimal value."""

from jbrl.report import comparison
from jbrl.stats import brackets


def test_brackets_are_found_by_the_digest_of_the_distribution() -> None:
    known = brackets.find("GC", *comparison.PUBLISHED)
    assert known is not None
    row = {"experiment": "GC", "published": 42.0, "published_ci95": 1.0}
    by_name = comparison.bayes_share(row, {})
    assert by_name.endswith("%")
    assert comparison.bayes_share(row, {"GC": known.digest}) == by_name
    assert comparison.bayes_share(row, {"GC": "of another distribution"}) == ""
    renamed = {**row, "experiment": "a name of its own"}
    assert comparison.bayes_share(renamed, {"a name of its own": known.digest}) == by_name
    assert comparison.bayes_share(renamed, {}) == ""
