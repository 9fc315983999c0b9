"""Every experiment of bsuite has a text, a rule and a title of its own."""

from jbrl.base.bsuite_sweep import EXPERIMENTS
from jbrl.report.bsuite import words


def test_every_experiment_has_words():
    for rules in EXPERIMENTS.values():
        assert len(words.text(rules)) > 100 and words.rule(rules)
        assert str(len(rules.settings)) in words.facts(rules)
    titles = [words.title(rules) for rules in EXPERIMENTS.values()]
    assert len(set(titles)) == 23
