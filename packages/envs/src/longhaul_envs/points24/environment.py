"""Points24 as a Gymnasium environment of text, or of text and pictures."""

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.types import Split, Task
from longhaul_envs.cards.points_game import PointsGame
from longhaul_envs.points24 import tasks as task_list
from longhaul_envs.points24.prompt import prompt_for

__all__ = ["Points24"]


class Points24(PointsGame):
    """Write a formula of four cards that makes the target, twenty-four by default.

    Task:
        Four cards of which such a formula exists.
    Action:
        The value of a card that the formula has not used; `+`, `-`, `*`, `/`, `(`, `)`; or `=`,
        which ends the game. A number that no card has left, and anything unreadable, writes a
        blank.
    Reward:
        10 for an `=` after a formula that uses every card and makes the target. -1 for any other
        `=`, for each blank, and for the action after a formula of more than 20 units. 0 otherwise.
    Episode end:
        Terminated by `=`. Truncated by the action after a formula of more than 20 units.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws a hand of whatever split.
    Info:
        `admissible_actions`, of text observations alone: values left, and all signs.
        `anchor_state`: hand and formula. `success`. `action_accepted`: False for a blank.
    """

    def __init__(
        self,
        *,
        observation: str = "text",
        target: int = 24,
        face_cards_as_ten: bool = True,
        num_hands: int = 3,
    ) -> None:
        self.options = task_list.Points24Options(
            observation=observation,
            target=target,
            face_cards_as_ten=face_cards_as_ten,
            num_hands=num_hands,
        )
        super().__init__(self.options.rules, observation=observation)

    @property
    def prompt(self) -> EnvironmentPrompt:
        """How Points24 introduces itself under these options."""
        return prompt_for(self.options)

    def tasks(self, split: Split, limit: int | None = None) -> tuple[Task, ...]:
        """The first `limit` tasks of `split`; see `longhaul_envs.points24.tasks`."""
        return task_list.tasks(split, self.options, limit)

    def draw_task(self, seed: int) -> str:
        return task_list.draw_hand(self.options, seed)
