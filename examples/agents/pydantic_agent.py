"""The same hunt in an agent framework, Pydantic AI: not a line of it is for training.

The framework finds the gateway by `OPENAI_BASE_URL` and `OPENAI_API_KEY`, as it finds OpenAI. Each
call is a step, and the reward that is printed lies at the end.
"""

import json
import os

from island import MOST_MOVES, RULES, Island, task_here
from pydantic_ai import Agent
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.usage import UsageLimits


def main() -> None:
    island = Island(task_here())
    agent = Agent(OpenAIChatModel(os.environ.get("MODEL", "auto")), system_prompt=RULES)

    @agent.tool_plain
    def move(direction: str) -> str:
        """Go one square: up, down, left or right."""
        return island.move(direction)

    try:
        agent.run_sync(island.look(), usage_limits=UsageLimits(request_limit=MOST_MOVES))
    except (UsageLimitExceeded, UnexpectedModelBehavior) as error:
        print(f"the hunt ended early: {error}")  # it is worth what it brought
    print(json.dumps({"reward": island.total, "success": island.found}))


if __name__ == "__main__":
    main()
