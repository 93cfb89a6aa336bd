"""What a run must have left whose groups are compared with a greedy episode."""

from training.launching import Launched
from variation import assert_several


def assert_each_group_is_compared_with_its_greedy_episode(launched: Launched) -> None:
    """A greedy episode of the same task beside each group; it is counted and never trained."""
    pairs = launched.query(
        "SELECT groups.task_hash = greedy.task_hash, sampled.episode_advantage, "
        "sampled.episode_advantage - (sampled.episode_return - greedy.episode_return) "
        "FROM groups JOIN episodes AS sampled USING (run_id, attempt, training_step, group_index) "
        "JOIN episodes AS greedy USING (run_id, attempt, training_step, group_index) "
        "WHERE groups.phase = 'train' AND update_index IS NOT NULL AND NOT groups.rolled_back "
        "AND sampled.phase = 'train' AND greedy.phase = 'baseline'"
    )
    trained = launched.value("SELECT count(*) FROM episodes WHERE trained")
    greedy = launched.query(
        "SELECT count(*), sum(trained), count(episode_advantage) FROM episodes "
        "WHERE phase = 'baseline'"
    )[0]

    assert len(pairs) == trained > 0
    assert all(same_task for same_task, _, _ in pairs)
    assert_several(advantage for _, advantage, _ in pairs)
    assert all(abs(difference) < 1e-9 for *_, difference in pairs), pairs
    assert greedy[0] > 0
    assert greedy[1:] == (0, 0)
