"""Pictures of solved episodes: agents do learn what the pages show, and every picture is drawn."""

import numpy as np
import pytest

from experiments import classic_pictures as pictures

DRAWN = {"chain", "gridworld", "mountain-car", "cart-pole", "acrobot", "pinball-maps"}


@pytest.mark.parametrize(
    ("name", "goal", "before", "after"), [("Chain-10s", 9, 30, 10), ("Gridworld-10s", 99, 400, 24)]
)
def test_a_path_to_the_goal_is_learned(name, goal, before, after):
    episodes, lane = pictures.learned(name, pictures.LEARNERS[name])
    assert (len(episodes), int(lane.fault)) == (pictures.EPISODES, 0)
    for episode in episodes:
        assert (episode[0], episode[-1]) == (0, goal)
        assert goal not in episode[:-1]
        places = np.stack(np.divmod(episode, 10 if goal == 99 else 1000))
        assert np.abs(np.diff(places)).sum(0).max() == 1
    assert len(episodes[0]) - 1 > before
    assert len(episodes[-1]) - 1 <= after


@pytest.mark.slow
def test_the_way_up_is_learned():
    episodes, _ = pictures.learned("MountainCar", pictures.LEARNERS["MountainCar"])
    assert len(episodes) == pictures.EPISODES
    for episode in episodes:
        position, velocity = episode.astype(np.float64).T
        assert tuple(episode[0]) == (-0.5, 0)
        assert position[-1] >= 0.5 > position[:-1].max()
        free = position[1:] > -1.2
        np.testing.assert_allclose(np.diff(position)[free], velocity[1:][free], atol=2e-7)
    assert len(episodes[0]) > 2 * len(episodes[-1])


@pytest.mark.slow
def test_all_pictures_are_drawn(tmp_path):
    pictures.main(["--out", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.png" for name in DRAWN}
    assert all(path.stat().st_size > 10_000 for path in tmp_path.iterdir())
