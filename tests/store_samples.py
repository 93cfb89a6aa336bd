"""Records for tests and benchmarks of the store, built from numbers alone."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.store import (
    Audit,
    AuditFinding,
    AuditRule,
    AuditSkip,
    CallCredit,
    CriticLossInput,
    CriticLossInputs,
    EpisodeCredit,
    EpisodeRecord,
    Evaluation,
    GroupDecision,
    Heartbeat,
    Label,
    LeaseRecord,
    LossInput,
    LossInputs,
    Metrics,
    PanelTasks,
    PolicyVersion,
    Record,
    RunEnded,
    RunStarted,
    TokenPieces,
)
from longhaul_core.store.queries import PromptMessage, StepDetail, StoredPicture
from longhaul_core.store.records import Phase
from longhaul_core.types import (
    Call,
    Continuation,
    CreditedBy,
    FailedEpisode,
    FailureCause,
    FinishReason,
    Message,
    Observation,
    Picture,
    SampledTokens,
    Sampling,
    Split,
    Step,
    StopReason,
    Task,
    Tool,
    ToolCall,
    Trajectory,
)
from pictures import png
from steps import one_call_step


def make_task(number: int = 0, *, split: Split = Split.TRAIN) -> Task:
    return Task(
        environment="samples/Maze-v0",
        version="1",
        data_hash="d41d",
        task_id=f"{split.value}/{number:05}",
        seed=number,
        split=split,
        goal=f"leave maze {number}",
    )


def make_step(
    index: int,
    *,
    reward: float = 0.0,
    num_prompt_tokens: int = 24,
    num_action_tokens: int = 6,
    seed: int = 0,
) -> Step:
    """A step unlike its neighbours; tokens depend on `seed` too, and prompts share their half."""
    draw = random.Random(f"{seed}/{index}")
    half = num_prompt_tokens // 2
    text = " ".join(str(draw.randrange(10_000)) for _ in range(num_prompt_tokens // 2))
    return one_call_step(
        index,
        Observation(
            text=f"You see {text}.",
            admissible_actions=("go north", "go south", f"take {index}"),
            anchor_state=f"room {index % 3}",
        ),
        messages=(
            Message(role="system", content="Leave the maze. Answer with one action."),
            Message(role="user", content=f"You see {text}.\nActions: go north | go south"),
        ),
        prompt_tokens=(
            *range(1000, 1000 + half),
            *(draw.randrange(49_152) for _ in range(num_prompt_tokens - half)),
        ),
        action_tokens=tuple(draw.randrange(49_152) for _ in range(num_action_tokens)),
        behavior_logprobs=tuple(-draw.random() for _ in range(num_action_tokens)),
        reply=f"<action>go north {draw.randrange(10_000)}</action>",
        action=f"go north {index}",
        action_valid=index % 4 != 3,
        reward=reward,
        policy_version=7,
        num_cached_tokens=num_prompt_tokens // 2 if index else 0,
        queue_seconds=0.01 + index / 1000,
        generate_seconds=0.25 + index / 1000,
        environment_seconds=0.002 + index / 1000,
    )


def make_trajectory(
    *,
    task: Task | None = None,
    sample_index: int = 0,
    rewards: tuple[float, ...] = (0.0, 0.5, 1.0),
    success: bool = True,
    stop_reason: StopReason = StopReason.TASK_SOLVED,
    num_prompt_tokens: int = 24,
    num_action_tokens: int = 6,
) -> Trajectory:
    task = task or make_task()
    return Trajectory(
        task=task,
        sample_index=sample_index,
        seed=1_000 + sample_index,
        horizon=50,
        steps=tuple(
            make_step(
                index,
                reward=reward,
                num_prompt_tokens=num_prompt_tokens,
                num_action_tokens=num_action_tokens,
                seed=task.seed * 1_000 + sample_index,
            )
            for index, reward in enumerate(rewards)
        ),
        stop_reason=stop_reason,
        success=success,
        final_observation=Observation(text="You are outside."),
        started_at=1_760_000_000.0,
        duration_seconds=2.5,
    )


def make_call(
    purpose: str,
    *,
    agent: str = "",
    prompt: tuple[int, ...] = (1, 2, 3),
    tokens: tuple[int, ...] = (4, 5),
    **fields: object,
) -> Call:
    """A call of the trained policy; logprobs say which token they are of."""
    given: dict[str, Any] = {
        "messages": (Message(role="user", content=f"{purpose}!"),),
        "reply": "a reply",
    }
    return Call(
        **(given | cast("dict[str, Any]", fields)),
        purpose=purpose,
        agent=agent,
        sampled=SampledTokens(
            prompt_tokens=prompt,
            action_tokens=tokens,
            behavior_logprobs=tuple(-token / 8 for token in tokens),
            policy_version=7,
        ),
    )


def make_program(*, task: Task | None = None, sample_index: int = 0) -> Trajectory:
    """An episode of a program of two agents: calls of each kind, pictures, tools, a bare step.

    The walker's second call goes on from its first, whose thoughts come back apart.
    """
    thoughts = "Where does this room lead to?"
    tools = (Tool(name="look", description="Look at a thing.", parameters='{"type": "object"}'),)
    room = Picture.of(png("red"))
    chart = Picture.of(png("green"))
    end = Picture.of(png("blue"), media_type="image/png")
    asked = ToolCall(id="call-1", name="look", arguments='{"at": "map"}')
    question = Message(role="user", content=("What now?", room))
    steps = (
        Step(
            index=0,
            observation=Observation(text="A room.", pictures=(room,)),
            calls=(
                make_call(
                    "plan", agent="planner", credit_share=0.5, continuation=Continuation.START
                ),
                make_call(
                    "act",
                    agent="walker",
                    messages=(Message(role="system", content="Walk."), question),
                    reply=f"<think>{thoughts}</think>\nLet me look.",
                    tools=tools,
                    tool_calls=(asked,),
                    conversation=1,
                    continuation=Continuation.START,
                    finish_reason=FinishReason.TOOL_CALLS,
                    num_cached_tokens=2,
                    queue_seconds=0.5,
                    generate_seconds=0.25,
                ),
                make_call(
                    "remember",
                    trained=False,
                    credited_by=CreditedBy.NEXT_STEP,
                    finish_reason=FinishReason.LENGTH,
                    conversation=2,
                    continuation=Continuation.START,
                    sampling=Sampling(
                        seed=3,
                        temperature=0.5,
                        top_p=0.9,
                        max_tokens=16,
                        stop=("END",),
                        altered=(("presence_penalty", "0.5"), ("top_k", "5")),
                    ),
                    overridden=("tools.web_search", "max_tokens"),
                    recalled_steps=(0, 12),
                ),
                Call(
                    messages=(Message(role="user", content="Was it good?"),),
                    reply="Yes.",
                    sampled=None,
                    purpose="judge",
                    model="hosted/judge-1",
                    conversation=3,
                    continuation=Continuation.START,
                    cost_usd=0.002,
                    trained=False,
                ),
            ),
            action="look at the map",
            action_valid=True,
            reward=0.25,
        ),
        Step(
            index=1,
            observation=Observation(text="A map."),
            calls=(
                make_call(
                    "act",
                    agent="walker",
                    prompt=(1, 2, 3, 4, 5, 9),
                    tokens=(6, 7, 8),
                    messages=(
                        question,
                        Message(
                            role="assistant",
                            content="Let me look.",
                            tool_calls=(asked,),
                            reasoning=thoughts,
                        ),
                        Message(role="tool", content=("the map:", chart), tool_call_id="call-1"),
                    ),
                    reply="go north",
                    tools=tools,
                    conversation=1,
                    continuation=Continuation.REWRITTEN,
                ),
            ),
            action="go north",
            action_valid=True,
            reward=0.5,
        ),
        Step(
            index=2,
            observation=Observation(text="A door."),
            calls=(),
            action="open the door",
            action_valid=True,
            reward=0.25,
        ),
    )
    return replace(
        make_trajectory(task=task, sample_index=sample_index),
        steps=steps,
        final_observation=Observation(text="Outside.", pictures=(end,)),
    )


def first_reply(step: StepDetail) -> str:
    """Of the step's first call, which nobody removed."""
    reply = step.calls[0].reply
    assert reply is not None
    return reply


def as_stored(messages: Sequence[Message]) -> tuple[PromptMessage, ...]:
    """Messages as the store answers with them."""
    return tuple(
        PromptMessage(
            role=message.role,
            parts=tuple(
                StoredPicture(part.content_hash, part.media_type)
                if isinstance(part, Picture)
                else part
                for part in message.parts
            ),
            tool_calls=message.tool_calls,
            tool_call_id=message.tool_call_id,
            reasoning=message.reasoning,
        )
        for message in messages
    )


def make_failure(*, task: Task | None = None, sample_index: int = 0) -> FailedEpisode:
    return FailedEpisode(
        task=task or make_task(),
        sample_index=sample_index,
        seed=1,
        horizon=50,
        cause=FailureCause.ENVIRONMENT_TIMEOUT,
        message="environment.step: no answer within 5 s",
        steps=(make_step(0),),
        started_at=1_760_000_000.0,
        duration_seconds=5.0,
    )


def run_started(
    run_id: str = "run", *, attempt: int = 0, resumes_after: int | None = None
) -> RunStarted:
    return RunStarted(
        run_id=run_id,
        name="sample",
        kind="train",
        attempt=attempt,
        config_json='{"name": "sample"}',
        provenance_json='{"git": "0000000"}',
        started_at=1_760_000_000.0 + attempt,
        num_training_steps=10,
        resumes_after_training_step=resumes_after,
        host="host",
        pid=4711,
    )


def make_record(
    outcome: Trajectory | FailedEpisode,
    *,
    run_id: str = "run",
    attempt: int = 0,
    phase: Phase = "train",
    training_step: int = 1,
    group_index: int = 0,
    retry: int = 0,
    group_size: int | None = None,
    branched_action: str | None = None,
) -> EpisodeRecord:
    """A record; of phase `branch` it continues the episode `stored-episode` at its second step."""
    is_branch = phase == "branch"
    return EpisodeRecord(
        run_id=run_id,
        attempt=attempt,
        phase=phase,
        training_step=training_step,
        group_index=group_index,
        retry=retry,
        outcome=outcome,
        group_size=group_size,
        branched_from="stored-episode" if is_branch else None,
        branched_at_step=1 if is_branch else None,
        branched_action=branched_action,
    )


def measured(
    episode_id: str,
    *,
    choice: Sequence[tuple[float, ...]],
    taken: Sequence[tuple[float, ...]],
    step: int = 1,
    run_id: str = "truth",
    name: str = "truth-random",
    seed: int = 0,
) -> list[Record]:
    """A run that continues an episode at a step: the rewards of each continuation's steps.

    Args:
        episode_id: What is continued.
        choice: Of those whose action whoever goes on chose.
        taken: Of those that took the stored action.
        step: At which they begin.
        run_id: Of the run.
        name: Says who goes on.
        seed: Of the run; its discount is 0.5.
    """
    config = {"name": name, "seed": seed, "store": run_id, "algorithm": {"discount": 0.5}}
    started = replace(run_started(run_id), name=name, kind="branch", config_json=json.dumps(config))
    played: list[Record] = [
        replace(
            make_record(
                make_trajectory(rewards=rewards, sample_index=sample),
                run_id=run_id,
                phase="branch",
                training_step=0,
                group_index=group,
                branched_action=action,
            ),
            branched_from=episode_id,
            branched_at_step=step,
        )
        for group, action, of_set in ((2 * step, None, choice), (2 * step + 1, "go", taken))
        for sample, rewards in enumerate(of_set)
    ]
    return [started, *played]


def make_credit(record: EpisodeRecord, *, episode_advantage: float = 0.5) -> EpisodeCredit:
    """Credit with recognisable numbers: step t has advantage `episode_advantage + t / 10`."""
    steps = record.outcome.steps
    count = len(steps)
    return EpisodeCredit(
        run_id=record.run_id,
        attempt=record.attempt,
        phase=record.phase,
        training_step=record.training_step,
        trained_training_step=record.training_step,
        group_index=record.group_index,
        sample_index=record.outcome.sample_index,
        retry=record.retry,
        episode_advantage=episode_advantage,
        step_advantages=tuple(index / 10 for index in range(count)),
        shaped_rewards=tuple(step.reward for step in steps),
        returns_to_go=tuple(sum(step.reward for step in steps[index:]) for index in range(count)),
        advantages=tuple(episode_advantage + index / 10 for index in range(count)),
        loss_weights=(1 / count,) * count,
        calls=tuple(
            CallCredit(
                step_index=step.index,
                call_index=place,
                advantage=call.credit_share * (episode_advantage + step.index / 10),
                loss_weight=1 / count,
                policy_logprobs=call.sampled.behavior_logprobs,
                policy_entropies=make_entropies(len(call.sampled.action_tokens)),
                split_reason=None,
                token_values=None,
                token_advantages=None,
                reference_logprob_sum=-0.5 * len(call.sampled.action_tokens) - step.index,
            )
            for step in steps
            for place, call in enumerate(step.calls)
            if call.trained and call.sampled is not None
        ),
        trained=True,
        optimizer_step_index=0,
    )


def make_entropies(count: int) -> tuple[float, ...]:
    """Recognisable ones: from 0 up by quarters of a nat, which float16 holds exactly."""
    return tuple(place / 4 for place in range(count))


SIGNALS: tuple[tuple[str, tuple[tuple[float, ...], ...], tuple[tuple[float, ...], ...]], ...] = (
    ("equal returns, one with a penalty", ((0.0, 1.0), (0.0, 1.0)), ((0.0, 1.0), (-0.1, 1.0))),
    ("equal returns, paid at other steps", ((0.5, 0.5), (1.0, 0.0)), ((0.5, 0.5), (1.0, 0.0))),
    ("all alike", ((0.0, 1.0), (0.0, 1.0)), ((0.0, 1.0), (0.0, 1.0))),
    ("returns that a penalty makes equal", ((1.0,), (1.5,)), ((1.0,), (1.0,))),
)
"""Groups of two: what is the matter, rewards as paid, and as credit is given for."""
NO_SIGNAL = (2, 3)
"""Those of `SIGNALS` that teach nothing."""


def make_signals(*, training_step: int) -> tuple[list[EpisodeRecord], list[EpisodeCredit]]:
    """The groups of `SIGNALS` in order, credited by GiGPO; steps of one index share a state."""
    records: list[EpisodeRecord] = []
    credits: list[EpisodeCredit] = []
    for group_index, (_, paid, shaped) in enumerate(SIGNALS):
        task = make_task(training_step * 100 + group_index)
        group = [
            make_record(
                make_trajectory(task=task, sample_index=sample_index, rewards=rewards),
                training_step=training_step,
                group_index=group_index,
                group_size=len(paid),
            )
            for sample_index, rewards in enumerate(paid)
        ]
        found = gigpo_credit(
            [np.array(rewards) for rewards in shaped],
            [[str(step.index) for step in record.outcome.steps] for record in group],
            discount=0.95,
        )
        records += group
        credits += [
            replace(
                make_credit(record, episode_advantage=credit.episode_advantage),
                shaped_rewards=rewards,
                step_advantages=credit.step_advantages,
                returns_to_go=credit.returns_to_go,
                advantages=credit.advantages,
                calls=tuple(
                    replace(call, advantage=credit.advantages[call.step_index])
                    for call in make_credit(record).calls
                ),
            )
            for record, rewards, credit in zip(group, shaped, found, strict=True)
        ]
    return records, credits


def make_decisions(episodes: Sequence[EpisodeRecord]) -> list[GroupDecision]:
    """Each group taken by the training step that played it."""
    groups = {(e.run_id, e.attempt, e.training_step, e.group_index) for e in episodes}
    return [
        GroupDecision(
            run_id=run_id,
            attempt=attempt,
            training_step=training_step,
            group_index=group_index,
            resolved_training_step=training_step,
            update_index=group_index,
        )
        for run_id, attempt, training_step, group_index in sorted(groups)
    ]


def make_loss_input(record: EpisodeRecord, *, micro_batch: int = 0) -> LossInputs:
    """Every trained call of the episode once, with the numbers of `make_credit`."""
    return LossInputs(
        run_id=record.run_id,
        attempt=record.attempt,
        training_step=record.training_step,
        optimizer_step_index=0,
        rank=0,
        micro_batch=micro_batch,
        rows=tuple(
            LossInput(
                training_step=record.training_step,
                group_index=record.group_index,
                sample_index=record.outcome.sample_index,
                retry=record.retry,
                step_index=call.step_index,
                call_index=call.call_index,
                row_index=place,
                num_tokens=len(call.policy_logprobs or ()),
                advantage_low=call.advantage,
                advantage_high=call.advantage,
                weight_low=call.loss_weight,
                weight_high=call.loss_weight,
                old_logprob_sum=sum(call.policy_logprobs or ()),
            )
            for place, call in enumerate(make_credit(record).calls)
        ),
    )


def make_training_step(
    training_step: int,
    *,
    run_id: str = "run",
    attempt: int = 0,
    num_groups: int = 2,
    group_size: int = 4,
) -> list[EpisodeRecord]:
    """The episodes of one training step; odd positions solve their task."""
    return [
        make_record(
            make_trajectory(
                task=make_task(training_step * 100 + group),
                sample_index=sample_index,
                rewards=(0.0,) * (1 + sample_index) + (float(sample_index % 2),),
                success=sample_index % 2 == 1,
                stop_reason=StopReason.TASK_SOLVED
                if sample_index % 2
                else StopReason.HORIZON_REACHED,
            ),
            run_id=run_id,
            attempt=attempt,
            training_step=training_step,
            group_index=group,
            group_size=group_size,
        )
        for group in range(num_groups)
        for sample_index in range(group_size)
    ]


def make_lease(
    *, lease_id: str = "lease", run_id: str = "run", attempt: int = 0, runner: str = "host:1"
) -> LeaseRecord:
    """A runner that plays the first episode of training step 1."""
    return LeaseRecord(
        run_id=run_id,
        attempt=attempt,
        lease_id=lease_id,
        episode_id=f"{run_id}/{attempt}/train/1/0/0/0",
        task_id="train/00000",
        runner=runner,
        leased_at=1_760_000_000.0,
        heard_at=1_760_000_001.0,
    )


def make_audit(*, run_id: str = "run", audited_at: float = 1_760_000_800.0) -> Audit:
    """An audit that checked two rules and found one step at fault."""
    return Audit(
        run_id=run_id,
        audited_at=audited_at,
        training_steps=(1, 2),
        num_steps=36,
        rules=(
            AuditRule(name="steps", num_checked=12, num_findings=0),
            AuditRule(name="advantage", num_checked=36, num_findings=1),
        ),
        not_checked=(AuditSkip(rule="tokens", reason="pruned", num_subjects=3),),
        findings=(
            AuditFinding(
                rule="advantage",
                training_step=2,
                episode_id=f"{run_id}/1/train/2/0/1/0",
                step_index=1,
                found="0.6",
                expected="0.5",
            ),
        ),
    )


def make_values(record: EpisodeRecord, **changes: float) -> CriticLossInputs:
    """The first step of an episode as the critic's loss read it."""
    row = CriticLossInput(
        training_step=record.training_step,
        group_index=record.group_index,
        sample_index=record.outcome.sample_index,
        retry=record.retry,
        step_index=0,
        call_index=0,
        row_index=3,
        num_tokens=1,
        first_token=0,
        target_low=0.5,
        target_high=0.5,
        weight_low=0.25,
        weight_high=0.25,
    )
    return CriticLossInputs(
        run_id=record.run_id,
        attempt=record.attempt,
        training_step=record.training_step,
        optimizer_step_index=1,
        rank=0,
        micro_batch=2,
        rows=(replace(row, **changes),),
    )


def one_of_each() -> list[Record]:
    """Every kind of record, about one run."""
    episodes = make_training_step(1)
    failure = make_record(make_failure(sample_index=3), group_index=0, training_step=2)
    program = make_record(make_program(), phase="validation", training_step=2)
    return [
        run_started(),
        PolicyVersion(run_id="run", attempt=0, version=1, training_step=1, created_at=1.0),
        PanelTasks(
            run_id="run", name="fixed", split=Split.TEST, tasks=(make_task(1), make_task(2))
        ),
        *episodes,
        failure,
        program,
        *make_decisions(episodes),
        *(make_credit(episode) for episode in episodes),
        *(make_loss_input(episode) for episode in episodes),
        *(make_values(episode) for episode in episodes),
        make_audit(),
        make_lease(),
        Metrics(run_id="run", attempt=0, training_step=1, values={"loss": 0.25, "entropy": 1.5}),
        Evaluation(
            run_id="run",
            attempt=0,
            training_step=1,
            panel="fixed",
            split=Split.TEST,
            num_episodes=2,
            mean_return=0.5,
            success_rate=0.5,
        ),
        TokenPieces(run_id="run", pieces={7: b"go", 8: b"\xe4"}),
        Label(
            episode_id=episodes[0].episode_id,
            step_index=None,
            name="verdict",
            value="loops",
            author="reader",
            created_at=2.0,
        ),
        Heartbeat(run_id="run", attempt=0, at=1_760_000_100.0),
        RunEnded(run_id="run", attempt=0, status="finished", message="", ended_at=1_760_000_200.0),
    ]
