"""verl's dumps of rollouts (`trainer.rollout_data_dir`), and those of verl-agent.

A line of JSONL is a row of verl's batch: `input` and `output` as text without special tokens,
`gts`, `score`, `step`, and whatever the reward function added. verl's newer trainer adds `uid`,
`sample_rollout_output`: rows of one rollout stand together, and are the steps of one episode. A row
without one is an episode of one step. verl-agent's rows are the steps of episodes too, but shuffled
and without a name, so that nobody can put them together again.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import FiniteFloat, NonNegativeInt

from longhaul_core.exchange.chat import GrowingSteps, Lenient, strays
from longhaul_core.exchange.episodes import ImportedEpisode, prompt_id, with_return
from longhaul_core.exchange.reading import Place, Value, validated
from longhaul_core.exchange.stored import StoredEpisode
from longhaul_core.store.queries import PromptMessage
from longhaul_core.types import Call, Message

__all__ = ["read_verl", "read_verl_agent", "write_verl", "write_verl_agent"]


class _Row(Lenient):
    input: str
    output: str
    score: FiniteFloat
    step: NonNegativeInt
    gts: Any = None
    uid: str | None = None
    step_reward: FiniteFloat | None = None
    """Ours: paid for this output alone; `score` is the whole episode's."""
    success: bool | None = None
    """Ours, as are the next two."""
    environment: str | None = None
    task_id: str | None = None


def read_verl(values: Iterable[Value]) -> Iterator[ImportedEpisode]:
    """Rows of one rollout make an episode, others one each."""
    rows: list[tuple[Place, _Row]] = []
    latest: tuple[int, str] | None = None
    seen: set[int] = set()
    for value in values:
        row = validated(_Row, value)
        session = None if row.uid is None else (row.step, _session(row.uid))
        if rows and (session is None or session != latest):
            yield _episode(rows)
            rows = []
        if session is not None and session != latest:
            if hash(session) in seen:
                raise value.place.error(
                    f"field uid: rollout {session[1]!r} of step {row.step} has rows apart from "
                    "these; verl writes the rows of a rollout one below the other"
                )
            seen.add(hash(session))
        rows.append((value.place, row))
        latest = session
    if rows:
        yield _episode(rows)


def read_verl_agent(values: Iterable[Value]) -> Iterator[ImportedEpisode]:
    """Each row is an episode of one step, paid what its whole trajectory was."""
    for value in values:
        row = validated(_Row, value)
        yield _episode([(value.place, row.model_copy(update={"uid": None}))])


def _session(uid: str) -> str:
    """What rows of one rollout have in common: `uid` without the number of the output."""
    parts = uid.rsplit("_", 2)
    return "_".join(parts[:2]) if len(parts) == 3 and parts[2].isdecimal() else uid


def _episode(rows: list[tuple[Place, _Row]]) -> ImportedEpisode:
    place, first = rows[0]
    last = rows[-1][1]
    growing = GrowingSteps()
    for _, row in rows:
        _add(growing, row)
    steps = tuple(growing.made)
    if any(row.step_reward is None for _, row in rows):
        steps = with_return(steps, last.score)
    group = None if first.uid is None else _session(first.uid).rsplit("_", 1)[0]
    return ImportedEpisode(
        place=place,
        task_id=first.task_id or prompt_id(first.input),
        environment=first.environment,
        group=group,
        steps=steps,
        success=last.success,
        training_step=first.step,
        task_data="" if first.gts is None else json.dumps({"ground_truth": first.gts}),
        left_out=frozenset(name for _, row in rows for name in strays(row)),
    )


def _add(steps: GrowingSteps, row: _Row) -> None:
    call = Call(
        messages=(Message(role="user", content=row.input),),
        reply=row.output,
        sampled=None,
        trained=False,
    )
    steps.add(
        (call,),
        step_index=None,
        observation=row.input,
        action=row.output,
        action_valid=True,
        reward=row.step_reward or 0.0,
    )


def write_verl(episode: StoredEpisode) -> Iterator[dict[str, Any]]:
    """A line for each call of the model, with `uid` and our own extra fields."""
    detail, summary = episode.detail, episode.detail.summary
    sample = f"{summary.phase}-{summary.group_index}_{summary.sample_index}"
    for number, (row, reward) in enumerate(_rows(episode)):
        yield row | {
            "gts": _ground_truth(detail.task_data),
            "uid": f"{sample}_{number}",
            "step_reward": reward,
            "success": summary.success,
            "environment": summary.environment,
            "task_id": summary.task_id,
        }


def write_verl_agent(episode: StoredEpisode) -> Iterator[dict[str, Any]]:
    """A line for each call of the model: the four fields that verl-agent has."""
    for row, _ in _rows(episode):
        yield row


def _rows(episode: StoredEpisode) -> Iterator[tuple[dict[str, Any], float]]:
    for _, call, reward in episode.paid_calls():
        row = {
            "input": prompt_text(call.messages, prefix=episode.prefix(call)),
            "output": call.reply or "",
            "score": episode.episode_return,
            "step": episode.detail.summary.training_step,
        }
        yield row, reward


def prompt_text(messages: tuple[PromptMessage, ...], *, prefix: str) -> str:
    """A prompt as one text: of one user's message its words, else each below its role."""
    if len(messages) == 1 and messages[0].role == "user" and not prefix:
        return messages[0].text
    told = [f"{message.role}\n{message.text}" for message in messages]
    return "\n".join((*told, f"assistant\n{prefix}"))


def _ground_truth(task_data: str) -> Any:  # noqa: ANN401 - whatever JSON a task has
    data: dict[str, Any] = json.loads(task_data) if task_data else {}
    return data.get("ground_truth")
