"""Rules about episodes and groups: whole, counted once, and failures in nothing."""

from collections import Counter, defaultdict
from math import fsum

from longhaul_core.audit.evidence import Evidence
from longhaul_core.audit.report import Tally
from longhaul_core.audit.rules.base import Rules, signs_of_training

__all__ = ["RULES"]

RULES = Rules()


@RULES.add("steps", "no step of an episode is missing")
def check_steps(evidence: Evidence, tally: Tally) -> None:
    """An episode's steps are 0, 1, 2 ... to its last."""
    for episode in evidence.episodes:
        tally.checked()
        if not episode.complete:
            last = episode.numbers.num_steps - 1
            there = {step.step_index for step in episode.steps}
            lost = sorted(set(range(last + 1)) - there)
            strays = sorted(there - set(range(last + 1)))
            tally.found(
                f"no step {', '.join(map(str, lost))}" if lost else f"steps {strays} beyond it",
                episode.numbers.episode_id,
                min([*lost, *strays]),
                expected=f"steps 0 to {last}",
            )


@RULES.add("episode_return", "a return is the sum of the rewards")
def check_return(evidence: Evidence, tally: Tally) -> None:
    """An episode's return is the sum of its rewards."""
    for episode in evidence.ended:
        if not episode.complete:
            tally.skip("the episode's steps are not all there")
            continue
        tally.checked()
        found, rewards = episode.numbers.episode_return, [step.reward for step in episode.steps]
        scale = fsum(map(abs, rewards))
        if found is None or abs(found - fsum(rewards)) > 1e-9 * (1 + scale):
            tally.found(
                "no return" if found is None else found,
                episode.numbers.episode_id,
                expected=fsum(rewards),
            )


@RULES.add("failures", "failed episodes have no return and no credit")
def check_failures(evidence: Evidence, tally: Tally) -> None:
    """A failed episode has no return, no credit, and is not trained."""
    for episode in evidence.episodes:
        if not episode.numbers.failed:
            continue
        tally.checked()
        wrong = signs_of_training(episode, ended=False)
        if wrong:
            tally.found(
                f"a failed episode with {', '.join(wrong)}",
                episode.numbers.episode_id,
                expected="nothing: a failure is never reward",
            )


@RULES.add("group_size", "groups have their episodes, or failures that say why not")
def check_group_size(evidence: Evidence, tally: Tally) -> None:
    """Every place of a group has one episode that ended, or failures that say why not."""
    ended: Counter[tuple[int, int]] = Counter()
    ids: dict[tuple[int, int], str] = {}
    tried: dict[int, set[int]] = defaultdict(set)
    for episode in evidence.episodes:
        place = (episode.numbers.group_index, episode.numbers.sample_index)
        tried[episode.numbers.group_index].add(episode.numbers.sample_index)
        ids[place] = episode.numbers.episode_id
        ended[place] += not episode.numbers.failed
    imitates, most = evidence.intent.imitates, evidence.intent.group_size
    demonstrated = {
        group: size
        for group, size in evidence.groups
        if imitates and size is not None and size <= most
    }
    num_groups = evidence.intent.tasks_per_training_step
    if evidence.intent.chooses:  # how many there may be is another rule's
        num_groups = min(num_groups, len(evidence.groups))
    for group in range(num_groups):
        tally.checked()
        size = demonstrated.get(group, most)
        if tried[group] != set(range(size)):
            tally.found(
                f"group {group} with places {sorted(tried[group])}",
                expected=f"{size} places, each with an episode or a recorded failure",
            )
    for place, number in ended.items():
        if number > 1:
            tally.found(f"{number} episodes that ended at one place", ids[place], expected="1")
    for group_index, group_size in evidence.groups:
        has_size = group_index in demonstrated if imitates else group_size == most
        if group_index >= evidence.intent.tasks_per_training_step or not has_size:
            tally.found(
                f"group {group_index} of {group_size} episodes",
                expected=f"{evidence.intent.tasks_per_training_step} groups of "
                f"{'at most ' * imitates}{most}",
            )


@RULES.add("trained_episodes", "what ended is trained, unless its group is too small to compare")
def check_trained_episodes(evidence: Evidence, tally: Tally) -> None:
    """Trained are the episodes that ended, in groups that have enough of them to compare."""
    meant = {episode.numbers.episode_id for episode in evidence.meant}
    learns = evidence.intent.trains_policy(evidence.training_step)
    for episode in evidence.ended:
        tally.checked()
        should = learns and episode.numbers.episode_id in meant
        if episode.numbers.trained != should:
            tally.found(
                "trained" if episode.numbers.trained else "not trained",
                episode.numbers.episode_id,
                expected="trained"
                if should
                else "not trained: the critic alone learns"
                if not learns
                else f"left out: fewer than {evidence.intent.smallest_group} of its group ended"
                + (", or no greedy one" if evidence.intent.needs_greedy_episode else ""),
            )
