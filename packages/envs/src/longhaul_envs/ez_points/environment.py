"""EZPoints as a Gymnasium environment of text, or of text and pictures."""

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.types import Split, Task
from longhaul_envs.cards.points_game import PointsGame
from longhaul_envs.ez_points import tasks as task_list
from longhaul_envs.ez_points.prompt import prompt_for

__all__ = ["EZPoints"]


class EZPoints(PointsGame):
    """Write a sum or a product of two cards that makes twelve.

    Task:
        Two cards with such a sum or product; jack, queen and king count 10.
    Action:
        `1` to `10`, the value of a card that the formula has not used; `+`; `*`; or `=`, which
        ends the game. A number that no card has left, and anything unreadable, writes a blank.
    Reward:
        10 for an `=` after a formula that uses both cards and makes 12. -1 for any other `=`, for
        each blank, and for the action after a formula of more than 5 units. 0 otherwise.
    Episode end:
        Terminated by `=`. Truncated by the action after a formula of more than 5 units.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws a hand of whatever split.
    Info:
        `admissible_actions`, of text observations alone: values left, `+`, `*`, `=`.
        `anchor_state`: hand and formula. `success`. `action_accepted`: False for a blank.
    """

    def __init__(self, *, observation: str = "text") -> None:
        self.options = task_list.EZPointsOptions(observation=observation)
        super().__init__(task_list.RULES, observation=observation)

    @property
    def prompt(self) -> EnvironmentPrompt:
        """How EZPoints introduces itself under these options."""
        return prompt_for(self.options.observation)

    def tasks(self, split: Split, limit: int | None = None) -> tuple[Task, ...]:
        """The first `limit` tasks of `split`; see `longhaul_envs.ez_points.tasks`."""
        return task_list.tasks(split, self.options, limit)

    def draw_task(self, seed: int) -> str:
        return task_list.draw_hand(seed)
