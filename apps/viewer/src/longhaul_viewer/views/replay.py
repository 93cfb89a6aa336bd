"""Replay of one episode: what the policy saw, read, wrote and was paid, step by step.

The step shown is the one in the address, so that a link to it can be shared; every
control changes the address and nothing else.
"""

import streamlit as st

from longhaul_core.store.queries import (
    CallDetail,
    EpisodeDetail,
    EpisodeSummary,
    StepDetail,
)
from longhaul_viewer import data, links
from longhaul_viewer.components import blocks, charts, tokens
from longhaul_viewer.components.blocks import Badge, Fact, Link

SLIDER = "step-slider"
REMOVED = "Removed by the run's retention, which keeps numbers and actions."
NO_TOKENS = "No tokens recorded: no engine of this run wrote the reply."
BY_PROBABILITY, BY_DRIFT = "Colour by probability", "Colour by learner − sampler"
AS_MESSAGES, AS_TOKENS = "Show the messages", "Show as the engine read it"


def page() -> None:
    """The whole page."""
    episode_id = links.parameter("episode")
    if episode_id is None:
        raise LookupError("the address names no episode; open one from the list of episodes")
    episode = data.episode(episode_id)
    header(episode)
    group_row(episode)
    if not episode.steps:
        st.info("The episode failed before its first step was finished.")
        return
    last = len(episode.steps) - 1
    index = links.whole_number("step", highest=last)
    strip(episode, index)
    controls(index, last)
    step = episode.steps[index]
    left, right = st.columns([2, 1], gap="large")
    call = chosen_call(step)
    with left:
        calls_of(step, call)
        if call is not None:
            reply(episode.summary.run_id, call)
        observation(episode, step)
        if call is not None:
            prompt(episode.summary.run_id, call)
    with right:
        action(step)
        credit(step)
        if call is not None:
            call_facts(step, call)
        times(step)


def header(episode: EpisodeDetail) -> None:
    """Where the episode belongs, what it was to do, and how it went."""
    summary = episode.summary
    place = links.group_address(data.group_of(summary))
    tone = "bad" if summary.failed else "good" if summary.success else "warn"
    outcome = [Badge(data.outcome(summary), tone)]
    returned = [Badge(f"return {blocks.number(summary.episode_return)}")] * (not summary.failed)
    if summary.rolled_back:
        outcome.append(Badge("rolled back by a resume", "warn"))
    if summary.retention == "removed":
        outcome.append(Badge("text and tokens removed", "warn"))
    blocks.html(
        blocks.trail(
            [
                Link("Runs", links.RUNS),
                Link(summary.run_id, links.address(links.RUN, run=summary.run_id)),
                Link("Episodes", links.address(links.EPISODES, run=summary.run_id)),
                Link(
                    f"{summary.phase} {summary.training_step}, group {summary.group_index}", place
                ),
                Link(f"episode {summary.sample_index}"),
            ]
        ),
        blocks.title(summary.goal or summary.task_id),
        blocks.badges(
            [
                *outcome,
                *returned,
                Badge(f"{summary.num_steps} of {summary.horizon} steps"),
                Badge(f"{summary.num_calls} calls"),
                Badge(f"{summary.num_action_tokens} tokens written"),
                Badge(f"{summary.duration_seconds:.1f} s"),
                Badge(f"{summary.environment} · {summary.task_id}"),
            ]
        ),
    )
    if summary.failure_message:
        blocks.html(blocks.alert(summary.failure_message))


def group_row(episode: EpisodeDetail) -> None:
    """The other episodes of the group."""
    summary = episode.summary
    group = data.group(data.group_of(summary)).members
    if len(group) < 2:
        return
    here = [member.episode_id for member in group].index(summary.episode_id)
    row, earlier, later = st.columns([10, 2, 2], vertical_alignment="bottom", gap="small")
    with row:
        blocks.html(
            blocks.label("Episodes of this group"),
            blocks.members(
                [
                    blocks.MemberLink(
                        text=episode_text(member),
                        address=links.address(links.REPLAY, episode=member.episode_id),
                        tone="failed" if member.failed else "good" if member.success else "plain",
                        here=member.episode_id == summary.episode_id,
                    )
                    for member in group
                ]
            ),
        )
    with earlier:
        st.button(
            "Episode before",
            key="earlier-episode",
            shortcut="k",
            disabled=here == 0,
            on_click=open_episode,
            args=(group[max(here - 1, 0)].episode_id,),
            width="stretch",
        )
    with later:
        st.button(
            "Episode after",
            key="later-episode",
            shortcut="j",
            disabled=here == len(group) - 1,
            on_click=open_episode,
            args=(group[min(here + 1, len(group) - 1)].episode_id,),
            width="stretch",
        )


def episode_text(member: EpisodeSummary) -> str:
    """Position, and return or failure."""
    result = "failed" if member.failed else f"return {blocks.number(member.episode_return)}"
    return f"{data.sample_name(member)} · {result}"


def open_episode(episode_id: str) -> None:
    """Show another episode from its first step on."""
    links.set_parameters(episode=episode_id, step=0, call=None)


def strip(episode: EpisodeDetail, index: int) -> None:
    """Reward and advantage of all steps; a click on one goes there."""
    figure = charts.episode_strip(data.strip(episode), current=index)
    # A key of its own for each step forgets the click that led here.
    clicked = charts.clicked_step(figure, key=f"strip-{episode.summary.episode_id}-{index}")
    if clicked is not None and clicked != index:
        go_to(clicked)
        st.rerun()


def controls(index: int, last: int) -> None:
    """Buttons, keys and a slider that change the step."""
    first, previous, following, end, slide = st.columns(
        [1, 2, 2, 1, 12], vertical_alignment="center", gap="small"
    )
    with first:
        st.button(
            ":material/first_page:",
            help="First step",
            key="first",
            disabled=index == 0,
            on_click=go_to,
            args=(0,),
        )
    with previous:
        st.button(
            "Previous",
            key="previous",
            shortcut="Left",
            disabled=index == 0,
            on_click=go_to,
            args=(index - 1,),
            width="stretch",
        )
    with following:
        st.button(
            "Next",
            key="next",
            shortcut="Right",
            disabled=index == last,
            on_click=go_to,
            args=(index + 1,),
            width="stretch",
        )
    with end:
        st.button(
            ":material/last_page:",
            help="Last step",
            key="last",
            disabled=index == last,
            on_click=go_to,
            args=(last,),
        )
    with slide:
        if last > 0:
            st.session_state[SLIDER] = index
            st.slider(
                "Step", 0, last, key=SLIDER, on_change=follow_slider, label_visibility="collapsed"
            )


def go_to(index: int) -> None:
    """Put the step into the address; which call is shown is its own again."""
    links.set_parameters(step=index, call=None)


def follow_slider() -> None:
    """Put the slider's step into the address."""
    go_to(int(st.session_state[SLIDER]))


def chosen_call(step: StepDetail) -> CallDetail | None:
    """The call that the address names, or else the one that chose the action, or the last."""
    if not step.calls:
        return None
    named = links.optional_number("call")
    if named is not None:
        return step.calls[min(named, len(step.calls) - 1)]
    return step.act or step.calls[-1]


def calls_of(step: StepDetail, chosen: CallDetail | None) -> None:
    """The calls of the step, each a link to itself, if it has not just the one that acted."""
    if chosen is None:
        blocks.html(blocks.label("Calls"), blocks.note("No model chose the action of this step."))
    elif len(step.calls) > 1 or chosen is not step.act:
        blocks.html(
            blocks.label("Calls", f"{len(step.calls)} in this step"),
            blocks.members(
                [
                    blocks.MemberLink(
                        text=call_name(call),
                        address=links.address_here(links.REPLAY, call=call.call_index),
                        tone="good" if call is step.act else "plain",
                        here=call is chosen,
                    )
                    for call in step.calls
                ]
            ),
        )


def call_name(call: CallDetail) -> str:
    """What it was for, whose it was, and which other model answered."""
    return " · ".join(name for name in (call.purpose, call.agent, call.model) if name)


def reply(run_id: str, call: CallDetail) -> None:
    """What the model wrote, each token coloured."""
    heading, choice = st.columns([3, 2], vertical_alignment="bottom")
    remarks = [call_name(call)]
    if call.num_action_tokens is not None:
        remarks.append(f"{call.num_action_tokens} tokens")
    if call.finish_reason != "stop":
        remarks.append(FINISHED.get(call.finish_reason, call.finish_reason))
    with heading:
        blocks.html(blocks.label("Reply", ", ".join(remarks)))
    if call.reply is None:
        blocks.html(blocks.note(REMOVED))
        return
    if call.tokens is None:
        pruned = "Its tokens and logprobs were pruned."
        blocks.html(
            blocks.text_block(call.reply),
            blocks.tool_calls(call.tool_calls),
            blocks.note(NO_TOKENS if call.num_action_tokens is None else pruned),
        )
        return
    scale = tokens.PROBABILITY
    if call.tokens.policy_logprobs is not None:
        with choice:
            if two_ways("colours", "drift", (BY_PROBABILITY, BY_DRIFT)):
                scale = tokens.DRIFT
    blocks.html(
        tokens.token_view(data.reply_tokens(run_id, call.tokens, scale), scale),
        tokens.legend(scale),
        blocks.tool_calls(call.tool_calls),
    )


FINISHED = {
    "length": "cut by the limit",
    "tool_calls": "asks for tools",
    "aborted": "interrupted",
}


def observation(episode: EpisodeDetail, step: StepDetail) -> None:
    """What the environment showed, and what it would have accepted."""
    last = step.step_index == len(episode.steps) - 1
    final = episode.final_pictures if last else ()
    by_hash = data.picture_bytes([*step.pictures, *final])
    blocks.html(
        blocks.label("Observation"),
        blocks.note(REMOVED) if step.observation is None else blocks.text_block(step.observation),
        blocks.pictures(step.pictures, by_hash),
    )
    actions = step.admissible_actions
    if actions is not None:
        blocks.html(
            blocks.label("Admissible actions", str(len(actions))),
            blocks.action_chips(actions, chosen=step.action),
        )
    if last and episode.final_observation is not None:
        blocks.html(
            blocks.label("Final observation"),
            blocks.text_block(episode.final_observation),
            blocks.pictures(final, by_hash),
        )


def prompt(run_id: str, call: CallDetail) -> None:
    """What the model read: as messages, and as the engine's tokens."""
    remarks: list[str] = []
    if call.num_prompt_tokens is not None:
        remarks.append(f"{call.num_prompt_tokens} tokens")
    if call.dropped_exchanges:
        remarks.append(f"{call.dropped_exchanges} remembered exchanges left out to make it fit")
    heading, choice = st.columns([3, 2], vertical_alignment="bottom")
    with heading:
        blocks.html(blocks.label("Prompt", ", ".join(remarks)))
    if call.reply is None:
        blocks.html(blocks.note(REMOVED))
        return
    with choice:
        as_tokens = two_ways("prompt", "tokens", (AS_MESSAGES, AS_TOKENS))
    if not as_tokens:
        shown = [part for each in call.messages for part in each.parts if not isinstance(part, str)]
        blocks.html(blocks.messages(call.messages, data.picture_bytes(shown)))
    elif call.tokens is not None:
        blocks.html(tokens.token_view(data.prompt_tokens(run_id, call.tokens), tokens.PROBABILITY))
    else:
        pruned = "The tokens of this prompt were pruned."
        blocks.html(blocks.note(NO_TOKENS if call.num_prompt_tokens is None else pruned))


def two_ways(name: str, other: str, labels: tuple[str, str]) -> bool:
    """A button that shows something the other way; whether the address asks for that now.

    A button, because it leaves the keys that change the step alone when it has the focus.

    Args:
        name: Of the parameter in the address.
        other: Its value for the second way; the first has none.
        labels: What the button offers: the first way, the second.
    """
    second = links.parameter(name) == other
    st.button(
        labels[0] if second else labels[1],
        key=name,
        on_click=links.set_parameters,
        kwargs={name: None if second else other},
        width="stretch",
    )
    return second


def action(step: StepDetail) -> None:
    """What the environment was given, and the verdict on it."""
    verdict = Badge("valid", "good") if step.action_valid else Badge("invalid", "bad")
    blocks.html(blocks.label("Action"), blocks.text_block(step.action), blocks.badges([verdict]))


def credit(step: StepDetail) -> None:
    """Reward, and what training made of it."""
    lines = [
        Fact("Reward", blocks.number(step.reward, signed=True), signed=step.reward),
        Fact(
            "Shaped reward",
            blocks.number(step.shaped_reward, signed=True),
            explanation="What credit is given for: the reward, shaped and less penalties",
        ),
        Fact(
            "Return-to-go",
            blocks.number(step.return_to_go),
            explanation="Discounted sum of the shaped rewards from this step on",
        ),
        Fact(
            "Advantage, episode part",
            blocks.number(step.episode_advantage, signed=True),
            explanation="How the whole episode did against its group",
        ),
        Fact(
            "Advantage, step part",
            blocks.number(step.step_advantage, signed=True),
            explanation="How it went on from here, against other steps taken in the same state",
        ),
        Fact(
            "Advantage",
            blocks.number(step.advantage, signed=True),
            signed=step.advantage,
            total=True,
            explanation="Both parts combined, as the loss used it",
        ),
        Fact(
            "Loss weight of a token",
            blocks.number(step.loss_weight if step.trained else None),
            explanation="A dash: the step was not in the loss",
        ),
    ]
    if step.value is not None:
        lines.insert(2, Fact("Value", blocks.number(step.value), explanation="The critic's"))
    blocks.html(
        blocks.label("Credit", "trained" if step.trained else "not trained"), blocks.facts(lines)
    )


def call_facts(step: StepDetail, call: CallDetail) -> None:
    """Which weights wrote the call, what the engine spent, and what credit it has of the step's."""
    lines: list[Fact] = []
    if call.policy_version is not None:
        lines.append(
            Fact(
                "Policy version",
                str(call.policy_version),
                explanation="Optimizer steps behind the weights that sampled the reply",
            )
        )
    if call.num_cached_tokens is not None and call.num_prompt_tokens is not None:
        lines.append(
            Fact(
                "Prompt tokens cached",
                f"{call.num_cached_tokens} of {call.num_prompt_tokens}",
                explanation="Leading tokens that the engine had kept of earlier prompts",
            )
        )
    if call.num_prompt_tokens is not None and len(step.calls) > 1:
        lines += [
            Fact("Its queue", f"{call.queue_seconds:.3f} s"),
            Fact("Its generation", f"{call.generate_seconds:.3f} s"),
        ]
    if call.trained and (call.credit_share != 1 or len(step.calls) > 1):
        lines += [
            Fact(
                "Share of the advantage",
                blocks.number(call.credit_share),
                explanation="What the step's advantage is multiplied by for this call",
            ),
            Fact("Its advantage", blocks.number(call.advantage, signed=True)),
        ]
    if call.split_reason is not None:
        lines.append(Fact("New row because", call.split_reason))
    trained = "trained" if call.trained and step.trained else "not trained"
    blocks.html(blocks.label("Call", f"{call_name(call)}, {trained}"), blocks.facts(lines))


def times(step: StepDetail) -> None:
    """Where the time of the step went, over all its calls."""
    queue = sum(call.queue_seconds for call in step.calls)
    generate = sum(call.generate_seconds for call in step.calls)
    blocks.html(
        blocks.label("Time"),
        blocks.times(queue=queue, generate=generate, environment=step.environment_seconds),
        blocks.facts(
            [
                Fact("Queue", f"{queue:.3f} s"),
                Fact("Generate", f"{generate:.3f} s"),
                Fact("Environment", f"{step.environment_seconds:.3f} s"),
            ]
        ),
    )


page()
