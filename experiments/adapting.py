"""First episodes in cart-poles not seen before: the figures of docs/agents/prior-trained.md.

python experiments/adapting.py

RL2 is trained on cart-poles drawn from the prior. Then it and Sarsa-lambda-s, which starts anew,
play the first episodes of the same lifetimes, whose masses, length and forces neither has seen.
"""

import argparse

import jbrl
from jbrl.agents.prior_trained.rl2 import RL2

PROBLEM, LIFETIMES, SEED = "CartPole", 256, 1
BUDGETS = (4096, 32_768)  # lifetimes of training
HORIZON = 400  # decisions of a lifetime in training
EPISODES = (1, 5, 20, 100)
LEARNERS_COLUMNS = 3  # that agents have which start anew: a hundred episodes take them minutes


def means(agent: object, columns: int = len(EPISODES)) -> list[str]:
    """Return mean returns over the first episodes, with the half-widths of 95% intervals."""
    found = []
    for episodes in EPISODES[:columns]:
        played = jbrl.play(
            agent, test=PROBLEM, n_environments=LIFETIMES, episodes=episodes, seed=SEED
        )
        error = played.returns.std() / LIFETIMES**0.5
        found.append(f"{played.returns.mean():.0f} ± {1.96 * error:.0f}")
    return found


def main() -> None:
    """Print the rows of the table."""
    for budget in BUDGETS:
        agent = RL2(budget=budget, horizon=HORIZON)
        learned = jbrl.play(agent, test=PROBLEM, n_environments=1, episodes=1).learned
        cells = " | ".join(means(learned.strategy))
        print(f"| RL2, {budget:,} lifetimes ({learned.seconds:.0f} s) | {cells} |", flush=True)
    for name in ("Sarsa-lambda-s", "Random"):
        cells = " | ".join(means(name, LEARNERS_COLUMNS))
        print(f"| {name} | {cells} | |", flush=True)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n\n")[0]).parse_args()
    main()
