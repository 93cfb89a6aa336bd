"""The rule about demonstrations: how many are imitated beside each group, and in which updates.

They are held to the rules of runs that imitate, too (`RULES_OF_DEMONSTRATIONS`).
"""

from collections import Counter, defaultdict

from longhaul_core.audit.evidence import Evidence
from longhaul_core.audit.report import Tally
from longhaul_core.audit.rules.base import Rules

__all__ = ["RULES", "RULES_OF_DEMONSTRATIONS"]

RULES = Rules()

RULES_OF_DEMONSTRATIONS = frozenset(
    {
        *("steps", "episode_return", "failures", "trained_episodes", "mask", "tokens"),
        *("end_tokens", "logprobs", "shaped_reward", "return_to_go", "episode_part", "step_part"),
        *("advantage", "call_advantage", "reference_logprobs", "silent_zero", "loss_weights"),
        *("loss_weight_sum", "optimizer_step_of_episode", "trained_in", "split_reasons"),
        *("loss_input_rows", "loss_input_tokens", "loss_input_advantage", "loss_input_weight"),
        *("loss_input_logprobs", "loss_input_once", "loss_input_all", "loss_input_nothing_else"),
    }
)
"""Names of the rules that demonstrations are held to where their loss has a coefficient, among
themselves: their weights have a denominator of their own, times the coefficient."""


@RULES.add("demonstrations", "as many stored episodes are imitated beside each group as configured")
def check_demonstrations(evidence: Evidence, tally: Tally) -> None:
    """Beside each group are as many as configured, and none where their loss has no coefficient."""
    intent, beside = evidence.intent, evidence.demonstrations
    tried: dict[int, set[int]] = defaultdict(set)
    ended: Counter[tuple[int, int]] = Counter()
    for episode in beside.episodes if beside else ():
        numbers = episode.numbers
        tried[numbers.group_index].add(numbers.sample_index)
        ended[numbers.group_index, numbers.sample_index] += not numbers.failed
        if numbers.trained and intent.coefficient(evidence.training_step) == 0:
            tally.found(
                "a trained demonstration",
                numbers.episode_id,
                expected="none: imitation.coefficient is 0 in this training step",
            )
    played_in = {
        episode.numbers.group_index: episode.numbers.played_training_step
        for episode in evidence.episodes
    }
    for group, training_step in played_in.items():
        tally.checked()
        wanted = intent.coefficient(training_step) > 0
        number = intent.imitation["demonstrations_per_group"] if wanted else 0
        if tried[group] != set(range(number)):
            tally.found(
                f"group {group} with demonstrations {sorted(tried[group])} beside it",
                expected=f"{number}, each an episode or a recorded failure",
            )
    for (group, place), number in ended.items():
        if number > 1:
            tally.found(
                f"{number} demonstrations at place {place} beside group {group}", expected="1"
            )
