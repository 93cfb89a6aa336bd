"""What a run with a critic must have left."""

from training.launching import Launched


def assert_a_critic_learned(launched: Launched, *, num_training_steps: int, where: str) -> None:
    """It valued every step, and every truncated episode at its end; it was trained and saved.

    Args:
        launched: A run.
        num_training_steps: Of the run; the last one has a checkpoint.
        where: SQL that says of an episode that it was credited.
    """
    episodes = launched.query(
        "SELECT count(*), sum(truncated), sum(final_value IS NOT NULL), "
        f"sum(truncated = (final_value IS NOT NULL)) FROM episodes WHERE {where}"
    )[0]
    steps = launched.query(
        "SELECT count(*), count(value), count(value_target), max(abs(value)) FROM steps "
        f"WHERE episode_id IN (SELECT id FROM episodes WHERE {where})"
    )[0]
    norms = launched.query(
        "SELECT value FROM metrics WHERE name = 'critic/grad_norm' AND NOT rolled_back"
    )

    assert 0 < episodes[1] == episodes[2] < episodes[0] == episodes[3]
    assert steps[0] == steps[1] == steps[2]
    assert steps[3] > 0  # a fresh critic says 0 of everything
    assert len(norms) == num_training_steps
    assert all(norm > 0 for (norm,) in norms)
    folder = launched.run_folder / "checkpoints" / f"global_step_{num_training_steps}" / "critic"
    saved = {path.name for path in folder.iterdir()}
    assert {"model_world_size_1_rank_0.pt", "optim_world_size_1_rank_0.pt"} <= saved
