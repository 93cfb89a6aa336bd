"""Play one episode of a packaged environment and look at the record it leaves.

The policy here plays a script, which the environment's own expert wrote; a language model
takes its place by having the same `act`. Run: `uv run python examples/01_play_one_episode.py`
"""

import asyncio
from collections.abc import Sequence

from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_core.gym import GymEnvironmentSpec, thread_environments
from longhaul_core.memory import PromptTemplate, WindowMemory
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.rollout import Agent, EpisodeLimits, EpisodeSpec, run_episode
from longhaul_core.types import Call, Message, Split, Trajectory
from longhaul_envs.play import expert_policy, play
from longhaul_envs.sources import environment_source

ENVIRONMENT = GymEnvironmentSpec(
    environment_id="longhaul/TextCraft-v0",
    options={"depth": 2},
    import_modules=("longhaul_envs.registry",),
)


class ScriptedPolicy:
    """Replies what it was told to, one action after the other."""

    def __init__(self, actions: Sequence[str]) -> None:
        self._remaining = list(actions)

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        reply = f"<action>{self._remaining.pop(0)}</action>"
        return Completion(
            text=reply,
            action_tokens=tuple(reply.encode()),
            behavior_logprobs=(0.0,) * len(reply.encode()),  # it was certain
            policy_version=0,
        )


class ByteRenderer:
    """A token for every byte. A real renderer applies the model's chat template."""

    def render(
        self,
        messages: Sequence[Message],
        *,
        earlier: Sequence[Call] = (),
        begins_reply: bool = True,
    ) -> tuple[int, ...]:
        return tuple("\n".join(message.text for message in messages).encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode()


def main() -> None:
    task = environment_source(ENVIRONMENT).tasks(Split.TRAIN)[0]
    script = play(ENVIRONMENT.make(), task, expert_policy, horizon=30).actions
    agent = Agent(
        policy=ScriptedPolicy(script),
        renderer=ByteRenderer(),
        parser=ActionParser(format=ActionFormat.TAGS),
        build_memory=lambda: WindowMemory(size=2, template=PromptTemplate()),
    )
    trajectory = asyncio.run(
        run_episode(
            EpisodeSpec(task=task, seed=0),
            agent=agent,
            make_environment=thread_environments(ENVIRONMENT),
            limits=EpisodeLimits(horizon=30, max_prompt_tokens=4000),
        )
    )
    assert isinstance(trajectory, Trajectory), trajectory

    print(trajectory.steps[0].calls[0].messages[-1].text, "\n")
    for step in trajectory.steps:
        print(f"{step.index:2}  {step.action:55} reward {step.reward}")
    print(f"\n{trajectory.stop_reason}: {task.goal}, return {trajectory.episode_return}")


if __name__ == "__main__":
    main()
