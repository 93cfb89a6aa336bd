"""The rule of rewards: a mistake in any part of the goal pays less than the whole of it.

An environment names the parts of its goal and plays each of them mistaken (`NamesGoalParts`).
Nothing is compared with an original, so a formula that pays for what nobody asked for is found in
an environment of any kind. Costs of steps are left out, since a mistake may be the shorter way.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from longhaul_core.types import Task
from longhaul_envs.contract.subject import Subject
from longhaul_envs.players import Player, opened

__all__ = ["AuditedPart", "audited_parts", "mistakes_pay_less"]


@dataclass(slots=True)
class AuditedPart:
    """A part of goals, and what became of its mistakes."""

    name: str
    num_tasks: int = 0
    """Tasks won by the expert that have this part."""
    num_mistaken: int = 0
    """Of them, those of which a mistake in it was played to its end."""
    paid: list[str] = field(default_factory=list[str])
    """What is wrong with those that paid all the same, in words."""


def mistakes_pay_less(subject: Subject) -> Iterator[str]:
    """A mistake in one part of the goal wins no task, and pays less than the expert's way."""
    parts = audited_parts(subject)
    for part in parts:
        subject.tell(
            f"reward audit: {part.name!r} was mistaken in {part.num_mistaken} of {part.num_tasks} "
            "tasks"
        )
        yield from part.paid
    if not parts:
        subject.tell("reward audit: none; no goal_parts, or the expert wins nothing")


def audited_parts(subject: Subject) -> list[AuditedPart]:
    """The parts of the goals of the tasks that are played, in the order in which they were met.

    A task that the expert does not win tells nothing. Neither does a part of which the task has no
    other, nor a mistake that the environment refuses.
    """
    parts: dict[str, AuditedPart] = {}
    with opened(subject.spec) as player:
        for task in subject.sample:
            player.start(task)
            names = player.goal_parts()
            won = _paid(player, task, player.expert_action, subject.horizon) if names else None
            if won is None or not won.success:
                continue
            for name in names:
                part = parts.setdefault(name, AuditedPart(name))
                part.num_tasks += 1
                got = _paid(player, task, lambda n=name: player.mistaken_action(n), subject.horizon)
                if got is None:
                    continue
                part.num_mistaken += 1
                if got.success or 0 < won.reward <= got.reward:
                    part.paid.append(
                        f"task {task.task_id!r} pays {got.reward:g} for {' | '.join(got.actions)}, "
                        f"which has another {name!r}, and {won.reward:g} for the expert's way; the "
                        "reward does not read that part of the goal"
                    )
    return list(parts.values())


@dataclass(slots=True)
class _Paid:
    reward: float
    """Sum of the rewards above 0."""
    success: bool
    actions: list[str]


def _paid(
    player: Player, task: Task, advice: Callable[[], str | None], horizon: int
) -> _Paid | None:
    """What following advice pays; None where there is none, or some of it is refused."""
    player.start(task)
    paid = _Paid(0.0, success=False, actions=[])
    while len(paid.actions) < horizon and (action := advice()) is not None:
        result = player.act(action)
        if not result.action_accepted:
            return None
        paid.actions.append(action)
        paid.reward += max(0.0, result.reward)
        paid.success |= result.success
        if result.terminated or result.truncated:
            break
    return paid if paid.actions else None
