"""A hosted model for tests: our own gateway, which speaks OpenAI's and Anthropic's APIs."""

import asyncio
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from gateways import open_episode
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.policy import Completion, Policy, Prompt, Sampling
from longhaul_core.types import Split
from longhaul_envs.players import opened
from longhaul_envs.sources import environment_source
from longhaul_trainer.gateway.episode import CallRules
from longhaul_trainer.gateway.server import Gateway

TEXTCRAFT = GymEnvironmentSpec(
    environment_id="longhaul/TextCraft-v0", import_modules=("longhaul_envs.registry",)
)


@dataclass(frozen=True)
class Hosted:
    """Where a hosted model is."""

    openai: str
    anthropic: str
    key: str


@contextmanager
def hosted_by_gateway(policy: Policy) -> Generator[Hosted]:
    """A policy behind a gateway on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def on_loop(act: Callable[[], object]) -> None:
        async def call() -> None:
            result = act()
            if asyncio.iscoroutine(result):
                await result

        asyncio.run_coroutine_threadsafe(call(), loop).result(60)

    gateway, environ = Gateway(), dict[str, str]()
    on_loop(gateway.start)

    def open_one() -> None:
        rules = CallRules(trains=False, allows_sampling=True)
        _, episode = open_episode(gateway, policy, rules=rules, horizon=100_000)
        environ.update(episode.environ())

    on_loop(open_one)
    try:
        yield Hosted(
            openai=environ["OPENAI_BASE_URL"],
            anthropic=environ["ANTHROPIC_BASE_URL"],
            key=environ["OPENAI_API_KEY"],
        )
    finally:
        on_loop(gateway.stop)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Crafter:
    """Knows what TextCraft's own expert would do in each state of some tasks, and says so."""

    def __init__(self, *, num_tasks: int, waits: float = 0.0) -> None:
        self.samplings: list[Sampling] = []
        self.prompts: list[str] = []
        self.waits = waits
        self._advice = expert_advice(num_tasks)

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        await asyncio.sleep(self.waits)
        self.samplings.append(sampling)
        text = prompt.messages[-1].text
        self.prompts.append(text)
        known = [state for state in self._advice if state in text]
        action = self._advice[max(known, key=len)] if known else "yes"
        reply = f"<think>I know.</think><action>{action}</action>"
        tokens = tuple(reply.encode())
        return Completion(
            text=reply,
            action_tokens=tokens,
            behavior_logprobs=(-0.5,) * len(tokens),
            policy_version=0,
        )


def expert_advice(num_tasks: int) -> Mapping[str, str]:
    """The expert's action by the observation's text, along its own way through test tasks."""
    advice: dict[str, str] = {}
    tasks = environment_source(TEXTCRAFT).tasks(Split.TEST)
    with opened(TEXTCRAFT) as player:
        for task in tasks[:num_tasks]:
            observation, ended = player.start(task), False
            while not ended:
                action = player.expert_action()
                assert action is not None
                advice[observation.text] = action
                result = player.act(action)
                observation, ended = result.observation, result.terminated
    return advice
