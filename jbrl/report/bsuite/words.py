"""Purpose of each experiment of the Behaviour Suite, in words: for reports and pages.

Facts are those of Osband et al. 2020 and of release 0.3.6 of their program; the words are not.
"""

import dataclasses

from jbrl.base.bsuite_sweep import Experiment


@dataclasses.dataclass(frozen=True)
class About:
    """A family of environments: the task, why it is there, how it is scored."""

    title: str
    task: str
    purpose: str
    score: str
    regret: str  # the quantity that curves show


FAMILIES = {
    "bandit": About(
        "Bandit",
        "An episode is one choice among 11 arms, which pay 0, 0.1, …, 1 in an order that is fixed "
        "for each setting.",
        "It is the least that can be asked of a learner: find the best arm and keep to it.",
        "One minus the average regret over all episodes, divided by 0.5, the regret of guessing; "
        "no less than 0.",
        "The regret of an episode is 1 less what the arm pays.",
    ),
    "mnist": About(
        "Digits",
        "An episode shows one image of a digit, and the action names it: +1 if right, −1 if wrong.",
        "It is supervised learning in the form of a bandit: perception without planning or memory.",
        "Half of it is one minus the average regret divided by 1.8, the regret of guessing; the "
        "other half is the accuracy over episodes 9,001 to 10,000.",
        "The regret of an episode is 2 for a wrong answer, 0 for a right one.",
    ),
    "catch": About(
        "Catch",
        "A ball falls down a board of 10 by 5 cells, and a paddle at the bottom moves left, right "
        "or stays; the only reward is +1 or −1 when the ball arrives.",
        "The reward comes nine steps after the first move that matters, on a small image.",
        "One minus the average regret divided by 1.6, the regret of random moves; no less than 0.",
        "The regret of an episode is 2 when the ball is missed.",
    ),
    "cartpole": About(
        "Cart-pole",
        "A pole stands upright on a cart that is pushed left, right or not at all. Each step earns "
        "1 as long as the pole is nearly upright and the cart near the centre; an episode lasts at "
        "most 1,001 steps.",
        "It needs values far into the future and a policy that holds on states never seen before.",
        "Half of it is one minus the average regret divided by 1,000; the other half is the share "
        "of settings in which some episode earned more than 500.",
        "The regret of an episode is 1,000 less its return.",
    ),
    "mountain_car": About(
        "Mountain car",
        "A car in a valley is too weak for the hill and has to swing; each step costs 1 until it "
        "is on top, for at most 1,000 steps.",
        "The goal is met by accident only, and the value function is far from smooth.",
        "One minus the average regret divided by 1,000; a car that stays at the bottom has 0.1.",
        "The regret of an episode is the number of its steps beyond 100.",
    ),
    "cartpole_swingup": About(
        "Swing-up",
        "The pole hangs down at first. Each push costs 0.1, and a step earns 1 only while the pole "
        "is upright, slow and the cart near the centre; how upright and how near differs from "
        "setting to setting.",
        "Doing nothing is a comfortable policy without loss, so that the way to the reward has to "
        "be sought against the cost of moving.",
        "For each setting: half of it is one minus the average regret divided by 700, the other "
        "half is 1 if some episode earned more than 100. The score is the mean over settings.",
        "The regret of an episode is 700 less its return.",
    ),
    "deep_sea": About(
        "Deep sea",
        "A diver sinks through N by N cells, one row a step, to the left or to the right; which "
        "action means right differs from cell to cell. Moving right costs a little, and only the "
        "corner at the bottom right holds the treasure.",
        "Random moves find it once in 2^N episodes: it tells deep exploration from dithering.",
        "The share of the 21 sizes that are solved before 2^N + 100 episodes; a size is solved at "
        "the first logged episode at which bad episodes are less than 90% of all so far (80% in "
        "release 0.3.5).",
        "An episode is bad if the diver has left the diagonal by its own choice.",
    ),
    "discounting_chain": About(
        "Discounting chain",
        "The first action chooses one of five chains, which pay 1 after 1, 3, 10, 30 or 100 steps, "
        "and one of them 1.1.",
        "An agent whose discount or whose updates do not reach 100 steps cannot tell which.",
        "One minus ten times the average regret; choosing at random has 0.2.",
        "The regret of an episode is 1.1 less its return.",
    ),
    "memory_chain": About(
        "Memory",
        "Some bits are shown at the start of an episode, then nothing of use, and at the end the "
        "agent is asked for one of them: +1 if right, −1 if wrong.",
        "The answer is not in sight when it is due, so that nothing without a memory is better "
        "than guessing.",
        "The share of the settings in which errors are less than 75% of those of guessing, over "
        "all episodes: more than 62.5% right.",
        "The plots show errors as a share of those of guessing.",
    ),
    "umbrella_chain": About(
        "Umbrella",
        "The first action takes an umbrella along or leaves it; the forecast that says which is "
        "right stays in sight. The consequence, +1 or −1, comes at the end of the chain; all "
        "rewards before it are ±1 by chance, whatever the agent does.",
        "One action matters, and its effect is delayed and buried in noise: credit assignment.",
        "The share of the settings with an average regret below 0.5: more than 75% right.",
        "The regret of an episode is 2 when the umbrella was needed and not there, or there and "
        "not needed.",
    ),
}
VARIANTS = {
    "noise": (
        " with noise",
        "Gaussian noise with a standard deviation of 0.1, 0.3, 1, 3 or 10 is added to every "
        "reward, four settings each; regret counts without it.",
        "This score is computed for each of the five levels. With s̄ and σ the mean and the "
        "standard deviation of the five, the score of the experiment is the mean of max(s̄, 0) and "
        "max(s̄ − σ, 0).",
    ),
    "scale": (
        " with scaled rewards",
        "Every reward is multiplied by 0.001, 0.03, 1, 30 or 1,000, four settings each; regret "
        "counts without that.",
        "This score is computed for each of the five levels. With s̄ and σ the mean and the "
        "standard deviation of the five, the score of the experiment is the mean of max(s̄, 0) and "
        "max(s̄ − σ, 0).",
    ),
}
SPECIAL = {
    "deep_sea_stochastic": (
        "Deep sea, stochastic",
        "Moves to the right fail with probability 1/N, and noise with a standard deviation of 1 "
        "is added in the two corners at the bottom.",
        "As in deep sea, but with bad episodes below 80% of all, counted from episode 100 on.",
    ),
    "memory_len": ("Memory length", "One bit is kept for 1 to 100 steps.", ""),
    "memory_size": ("Memory size", "One of 1 to 40 bits is asked for, after two steps.", ""),
    "umbrella_length": (
        "Umbrella length",
        "Chains are 1 to 100 steps long, with 20 bits of distraction in each observation.",
        "",
    ),
    "umbrella_distract": (
        "Umbrella, distracted",
        "Chains are 20 steps long, with 1 to 100 bits of distraction in each observation.",
        "",
    ),
}


def title(experiment: Experiment) -> str:
    """Return a heading: "Catch with noise"."""
    if experiment.name in SPECIAL:
        return SPECIAL[experiment.name][0]
    variant = VARIANTS.get(experiment.wrapper, ("",))[0]
    return FAMILIES[experiment.family].title + variant


def text(experiment: Experiment) -> str:
    """Describe the task and the ability it tests."""
    about = FAMILIES[experiment.family]
    parts = [about.task, about.purpose]
    if experiment.name in SPECIAL:
        parts.append(SPECIAL[experiment.name][1])
    if experiment.wrapper:
        parts.append(VARIANTS[experiment.wrapper][1])
    return " ".join(parts)


def rule(experiment: Experiment) -> str:
    """Describe the score."""
    about = FAMILIES[experiment.family]
    if experiment.wrapper:
        return f"{about.score} {VARIANTS[experiment.wrapper][2]}"
    special = SPECIAL.get(experiment.name, ("", "", ""))[2]
    return special or about.score


def facts(experiment: Experiment) -> str:
    """Return settings, episodes and tags in a line."""
    tags = ", ".join(map(in_words, experiment.tags))
    return f"{len(experiment.settings)} settings of {experiment.episodes:,} episodes; tags: {tags}"


def level_words(experiment: Experiment) -> str:
    """Return the name of the setting that curves are grouped by."""
    if experiment.family == "discounting_chain":
        return "steps until the best reward"
    return in_words(experiment.level)


def in_words(name: str) -> str:
    """Return a name of the original in words: `credit_assignment` is "credit assignment"."""
    return name.replace("_", " ")
