"""Rules about a critic: its values, its value targets, and what its loss read."""

from collections import Counter
from collections.abc import Iterator

from longhaul_core.audit.evidence import AuditedEpisode, Evidence, key_of
from longhaul_core.audit.report import Tally
from longhaul_core.audit.rules.base import Rules, each_step, far

__all__ = ["RULES"]

RULES = Rules()


@RULES.add("values", "steps have values, and so has the end of a truncated episode alone")
def check_values(evidence: Evidence, tally: Tally) -> None:
    """Each credited step has a value, and so has the end of a truncated episode alone."""
    if not evidence.intent.has_critic:
        return
    for episode in evidence.meant:
        numbers = episode.numbers
        tally.checked(1 + len(episode.steps))
        if (numbers.final_value is None) != episode.terminated:
            tally.found(
                "no final value"
                if numbers.final_value is None
                else f"a final value of {numbers.final_value:.9g}",
                numbers.episode_id,
                expected="none: the task itself ended"
                if episode.terminated
                else f"the value of the last observation: {numbers.stop_reason} cut it short",
            )
        for step in episode.steps:
            if step.value is None:
                tally.found(
                    "no value",
                    step.episode_id,
                    step.step_index,
                    expected="the critic's value of its prompt",
                )


def _targets(evidence: Evidence, tally: Tally) -> Iterator[tuple[AuditedEpisode, list[float]]]:
    """A value target is the unwhitened advantage plus the value."""
    for episode in evidence.meant if evidence.intent.has_critic else ():
        credit = evidence.credit.get(episode.numbers.episode_id)
        if credit is None:
            tally.skip(evidence.uncreditable[episode.numbers.episode_id])
            continue
        assert credit.value_targets is not None
        yield episode, credit.value_targets


RULES.add("value_targets", "value targets follow their definition")(
    each_step(lambda step: step.value_target, _targets)
)


@RULES.add("token_advantages", "each token's advantage follows its definition")
def check_token_advantages(evidence: Evidence, tally: Tally) -> None:
    """Each token has the advantage of its place in the chain of its episode's tokens."""
    if not evidence.intent.credits_tokens:
        return
    for episode in evidence.meant:
        credit = evidence.credit.get(episode.numbers.episode_id)
        if credit is None or credit.token_advantages is None:
            continue  # value_targets reports it
        for calls, of_step in zip(episode.trained_calls, credit.token_advantages, strict=True):
            rest = of_step  # the calls of a step follow each other as one reply
            for call in calls:
                number = call.num_action_tokens or 0
                expected = [call.credit_share * value for value in rest[:number]]
                rest = rest[number:]
                found = evidence.token_credit[key_of(call)]
                tally.checked(number)
                wrong = [
                    place
                    for place, value in enumerate(expected)
                    if place >= len(found.advantages)
                    or far(found.advantages[place], value, evidence.rounding)
                ]
                if wrong:
                    place = wrong[0]
                    value = found.advantages[place] if place < len(found.advantages) else None
                    tally.found(
                        f"token {place}: {'no advantage' if value is None else f'{value:.9g}'}",
                        *key_of(call),
                        expected=expected[place],
                    )


@RULES.add("critic_loss_inputs", "the critic's loss read each call once, as it was meant")
def check_loss_inputs(evidence: Evidence, tally: Tally) -> None:
    """The critic's loss read every trained call once, with its step's target and weight.

    By token it reads every token; by step the first one of the last trained call that acts, or of
    the last trained one where none does.
    """
    if not evidence.intent.has_critic:
        return
    times = Counter(key_of(row) for row in evidence.critic_loss_inputs)
    parts = {
        episode.numbers.episode_id: evidence.optimizer_step_of(episode)
        for episode in evidence.meant
    }
    for episode in evidence.meant:
        for call in (call for calls in episode.trained_calls for call in calls):
            tally.checked()
            number = times[key_of(call)]
            if number != 1:
                tally.found(
                    f"read {number} times by the critic's loss", *key_of(call), expected="once"
                )
    by_token = evidence.intent.credits_tokens
    valued = {
        (call.episode_id, call.step_index): call.call_index
        for episode in evidence.meant
        for of_step in episode.trained_calls
        for call in sorted(of_step, key=lambda call: (call.purpose == "act", call.call_index))
    }  # the last one of each step stays
    for row in evidence.critic_loss_inputs:
        call = evidence.calls.get(key_of(row))
        step = evidence.steps.get((row.episode_id, row.step_index))
        weights = evidence.value_weights.get(row.episode_id)
        wrong: list[str] = []
        if step is None or call is None or not call.trained or row.episode_id not in parts:
            wrong = [f"{row.num_tokens} values"] if row.num_tokens else []
            expected = "nothing: the call was not to be credited"
        else:
            one = int(valued.get((row.episode_id, row.step_index)) == row.call_index)
            num_tokens = call.num_action_tokens if by_token else one
            first = 0 if num_tokens else None
            target, weight = step.value_target, None if weights is None else weights[row.step_index]
            expected = f"{num_tokens} from the first token on, target {target}, weight {weight}"
            if (row.num_tokens, row.first_token) != (num_tokens, first):
                wrong.append(f"{row.num_tokens} values from token {row.first_token} on")
            if target is not None and any(
                found is not None and far(found, target, 0.0)
                for found in (row.target_low, row.target_high)
            ):
                wrong.append(f"targets {row.target_low} to {row.target_high}")
            if weight is not None and any(
                found is not None and far(found, weight, 0.0)
                for found in (row.weight_low, row.weight_high)
            ):
                wrong.append(f"weights {row.weight_low} to {row.weight_high}")
            update = row.optimizer_step_index, row.training_step
            if update != (parts[row.episode_id], evidence.training_step):
                wrong.append("optimizer step {} of training step {}".format(*update))
        if wrong:
            tally.found(", ".join(wrong), *key_of(row), expected=expected)
