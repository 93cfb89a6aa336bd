"""SQL as a Gymnasium environment of text, on SQLite."""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.pictures import text_picture
from longhaul_envs.sql import tasks as task_list
from longhaul_envs.sql.box import Limits, Refusal, Result, Value, run_query
from longhaul_envs.sql.scoring import asks_for_order, same_result
from longhaul_envs.text import text_space

__all__ = ["SQL"]

_MAX_STATEMENT = 20_000
_WHOLE_ROWS, _WHOLE_BYTES = 20_000, 8_000_000
"""Of a result that is scored."""
_MAX_SHOWN = 500
"""Characters of a value that are shown."""
_MAX_SECONDS = 10.0
"""After which the process of a query is ended. Its count of steps ends it earlier, as a rule."""
_MORE_FOR_GOLD = 10
"""Times as many steps and seconds as others have: it has to be run."""


class SQL(PackagedEnv[str, task_list.SQLOptions]):
    """Answer a question about a database by a query.

    Task:
        A database and a question. In the form `explore` any number of queries may look at the
        data before the answer.
    Action:
        `query SELECT ...` shows the first rows of a result. `answer SELECT ...` ends the task.
        In the form `single` an action is a statement, and the answer. What is no SELECT, or takes
        too much, is refused.
    Reward:
        1 for an answer with the gold query's result, see `scoring`; 0 otherwise.
    Episode end:
        Terminated by an answer, right, wrong or refused. Never truncated here.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws a question of whatever split.
    Info:
        `admissible_actions` is missing: there is no end of statements. `anchor_state`: the task
        and the last result. `success`. `action_accepted`: False for what is no action, and for a
        query that was refused or has an error.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self.action_space = text_space(_MAX_STATEMENT)
        self._asked: task_list.Asked | None = None
        self._seen = self._result = ""
        self._is_over = True
        self._solved = False
        self._folder: weakref.finalize[[str], SQL] | None = None
        """Takes away the folder of a generated database, at `close` or with this object."""

    def expert_action(self) -> str | None:
        """The gold query, as an answer."""
        if self._asked is None or self._is_over:
            return None
        return f"answer {self._asked.gold}" if self.options.form == "explore" else self._asked.gold

    def goal_parts(self) -> tuple[str, ...]:
        """The rows of the answer."""
        return ("rows",)

    def mistaken_action(self, part: str) -> str | None:
        """The gold query without its rows, as an answer; None where it has none."""
        action, task = self.expert_action(), self._asked
        if action is None or task is None:
            return None
        found = self._run(task, task.gold, is_whole=True, times=_MORE_FOR_GOLD)
        if isinstance(found, Refusal) or not found.rows:
            return None
        gold = task.gold
        return action.replace(gold, f"SELECT * FROM ({gold.strip().rstrip(';')}) LIMIT 0")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.close()
        if options is not None and "task_id" in options:
            self._asked = task_list.asked(str(options["task_id"]), self.options)
        else:
            drawn = int(self.np_random.integers(2**31))
            self._asked = task_list.draw_asked(self.options, drawn)
        self._is_over = self._solved = False
        self._result = ""
        self._seen = self._observe(self._asked, "", is_first=True)
        return self._seen, self._info(self._asked, accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        task = self._asked
        if task is None or self._is_over:
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        word, *rest = action.split(maxsplit=1) or [""]
        statement = rest[0].strip() if rest else ""
        if self.options.form == "single":
            word, statement = "answer", action.strip()
        if word.lower() not in ("query", "answer") or len(statement) > _MAX_STATEMENT:
            said = (
                f"That is no action here: write query or answer, and a SELECT statement of up to "
                f"{_MAX_STATEMENT} characters"
            )
            self._seen = self._observe(task, said)
            return self._seen, 0.0, False, False, self._info(task, accepted=False)
        is_answer = word.lower() == "answer"
        found = self._run(task, statement, is_whole=is_answer)
        if is_answer:
            self._is_over = True
            self._solved = isinstance(found, Result) and self._is_right(task, found)
            verdict = "The answer is right" if self._solved else "The answer is wrong"
            said = f"{verdict}: {found.reason}" if isinstance(found, Refusal) else verdict
        else:
            said = f"Refused: {found.reason}" if isinstance(found, Refusal) else self._shown(found)
        self._seen = self._observe(task, said)
        accepted = is_answer or isinstance(found, Result)
        if accepted:
            self._result = said
        reward = float(self._solved)
        return self._seen, reward, self._is_over, False, self._info(task, accepted=accepted)

    def render(self) -> NDArray[np.uint8]:
        """What is seen, as a picture of text, red, green and blue."""
        return text_picture(self._seen)

    def close(self) -> None:
        """Take away the database's file, if one was made."""
        if self._folder is not None:
            self._folder()
            self._folder = None

    def _file(self, task: task_list.Asked) -> Path:
        """The database's file, made when it is first needed."""
        if isinstance(task.source, Path):
            return task.source
        if self._folder is None:
            folder = tempfile.mkdtemp(prefix="longhaul-sql-")
            self._folder = weakref.finalize(self, shutil.rmtree, folder)
            (Path(folder) / "data.sqlite").write_bytes(task.source)
        arguments = self._folder.peek()
        assert arguments is not None
        return Path(arguments[2][0]) / "data.sqlite"

    def _run(
        self, task: task_list.Asked, statement: str, *, is_whole: bool, times: int = 1
    ) -> Result | Refusal:
        limits = Limits(
            max_steps=self.options.max_steps * times,
            max_seconds=_MAX_SECONDS * times,
            max_rows=_WHOLE_ROWS if is_whole else self.options.shown_rows,
            max_bytes=_WHOLE_BYTES,
        )
        return run_query(self._file(task), statement, limits, allow_clock=bool(self.options.bird))

    def _is_right(self, task: task_list.Asked, found: Result) -> bool:
        gold = self._run(task, task.gold, is_whole=True, times=_MORE_FOR_GOLD)
        if isinstance(gold, Refusal) or not gold.is_whole:
            why = gold.reason if isinstance(gold, Refusal) else "its result is too large"
            raise RuntimeError(f"the gold query of task {task.task_id!r} cannot be scored: {why}")
        return same_result(
            found,
            gold,
            ordered=asks_for_order(task.gold),
            as_sets=self.options.scoring == "sets",
        )

    def _shown(self, found: Result) -> str:
        lines = [" | ".join(found.columns)]
        lines += [" | ".join(map(self._cell, row)) for row in found.rows]
        count = f"{len(found.rows)} row{'s' * (len(found.rows) != 1)}"
        return "\n".join([*lines, f"({count})" if found.is_whole else f"(the first {count})"])

    def _cell(self, value: Value) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, bytes):
            return f"[{len(value)} bytes]"
        text = str(value)
        rest = f"[{len(text) - _MAX_SHOWN} more characters]"
        return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}{rest}"

    def _observe(self, task: task_list.Asked, said: str, *, is_first: bool = False) -> str:
        lines = [f"Goal: {task.question}"]
        if task.hint:
            lines.append(f"Hint: {task.hint}")
        if self.options.schema == "always" or (self.options.schema == "first" and is_first):
            lines += [f"Tables of {task.database}:", *task.schema]
        return "\n".join([*lines, *filter(None, [said])])

    def _info(self, task: task_list.Asked, *, accepted: bool) -> dict[str, Any]:
        return {
            "anchor_state": f"{task.task_id}\n{self._result}",
            "success": self._solved,
            "action_accepted": accepted,
        }
