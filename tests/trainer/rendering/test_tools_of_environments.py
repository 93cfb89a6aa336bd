"""An environment's tools reach the chat template, and actions are calls as models write them."""

import asyncio
import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest

from chat_templates import FAMILIES, tokenizer_like
from fakes import ScriptedEnvironment, make_task
from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_core.memory import FullHistory, PromptTemplate, WindowMemory
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.rollout import Agent, EpisodeLimits, EpisodeSpec, run_episode
from longhaul_core.types import FinishReason, Step, Trajectory
from trainer.rendering.conversations import MOVE, renderer_like, sampled

CALLS = {
    "qwen2.5": 'I go.\n<tool_call>\n{{"name":  "move", "arguments": {{"where": "{}"}}}}\n'
    "</tool_call>",
    "qwen3": '<tool_call>\n{{"name": "move", "arguments": {{"where": "{}"}}}}\n</tool_call>',
    "llama-3": '{{"name": "move",  "parameters": {{"where": "{}"}}}}',
    "qwen-coder": "<tool_call>\n<function=move>\n<parameter=where>\n{}\n</parameter>\n"
    "</function>\n</tool_call>",
    "mistral": '[TOOL_CALLS][{{"name": "move", "arguments": {{"where": "{}"}}}}]',
}
"""As each family writes them, spaced otherwise than its template does."""


SPELLED = "‖"
"""Around what a reply spells letter by letter, names of control tokens too."""


class Writes:
    """A policy that writes texts by tokens of one character each. A `Policy`."""

    def __init__(self, family: str, replies: Sequence[str]) -> None:
        self._family = family
        self._replies = list(replies)

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        tokenizer = tokenizer_like(self._family)
        before, *rest = self._replies.pop(0).split(SPELLED)
        tokens = sampled(tokenizer, before)
        for spelled, text in zip(rest[::2], rest[1::2], strict=True):
            letters = (tokenizer.encode(one, add_special_tokens=False) for one in spelled)
            tokens += tuple(chain.from_iterable(letters)) + sampled(tokenizer, text)
        tokens += sampled(tokenizer, FAMILIES[self._family].end)
        return Completion(
            text=renderer_like(self._family).decode(tokens),
            action_tokens=tokens,
            behavior_logprobs=(-1.0,) * len(tokens),
            policy_version=0,
        )


def played(
    family: str,
    replies: Sequence[str],
    *,
    window: bool = False,
    require_thinking: bool = False,
    reply_prefix: str = "",
) -> tuple[ScriptedEnvironment, tuple[Step, ...]]:
    """Three steps of an environment with a tool, or as many as there are replies."""
    environment = ScriptedEnvironment(rewards=[0.0] * len(replies))
    template = PromptTemplate(system="You are in a maze.")
    agent = Agent(
        policy=Writes(family, replies),
        renderer=renderer_like(family),
        parser=ActionParser(
            format=ActionFormat.TOOL_CALL,
            require_thinking=require_thinking,
            reply_prefix=reply_prefix,
        ),
        build_memory=lambda: (
            WindowMemory(size=2, template=template) if window else FullHistory(template=template)
        ),
        tools=(MOVE,),
        max_reply_tokens=500,
    )
    outcome = asyncio.run(
        run_episode(
            EpisodeSpec(task=make_task(3), seed=11, sample_index=0),
            agent=agent,
            make_environment=lambda task: environment,
            limits=EpisodeLimits(horizon=len(replies), max_prompt_tokens=9_000),
        )
    )
    assert isinstance(outcome, Trajectory), outcome
    return environment, outcome.steps


def text_of(family: str, step: Step) -> str:
    (call,) = step.calls
    assert call.sampled is not None
    return str(tokenizer_like(family).decode(list(call.sampled.prompt_tokens)))


@pytest.mark.parametrize("family", CALLS)
def test_actions_are_calls_in_the_models_own_syntax(family: str) -> None:
    replies = [CALLS[family].format(where) for where in ("north", "east", "south")]

    environment, steps = played(family, replies)

    assert [json.loads(action) for action in environment.actions] == [
        {"name": "move", "arguments": {"where": where}} for where in ("north", "east", "south")
    ]
    assert all(step.action_valid for step in steps)
    (call,) = steps[0].calls
    assert call.tools == (MOVE,)
    assert [asked.name for asked in call.tool_calls] == ["move"]
    assert call.finish_reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize("family", ["qwen2.5", "llama-3"])
def test_the_prompt_is_the_templates_own_with_tools_calls_and_results(family: str) -> None:
    """What the second prompt has of the first reply are its tokens, spaced as it was."""
    first, second = (CALLS[family].format(where) for where in ("north", "east"))

    _, steps = played(family, [first, second])

    chat: list[dict[str, Any]] = [
        {"role": "system", "content": "You are in a maze."},
        {"role": "user", "content": "start 3"},
    ]
    schema = {
        "type": "function",
        "function": {
            "name": MOVE.name,
            "description": MOVE.description,
            "parameters": json.loads(MOVE.parameters),
        },
    }
    asked = {"name": "move", "arguments": {"where": "north"}}
    said = "I go." if family == "qwen2.5" else ""
    later: list[dict[str, Any]] = [
        *chat,
        {
            "role": "assistant",
            "content": said,
            "tool_calls": [{"type": "function", "id": "x", "function": asked}],
        },
        {"role": "tool", "content": "after 1", "tool_call_id": "x"},
    ]

    def templated(messages: list[dict[str, Any]]) -> str:
        return str(
            tokenizer_like(family).apply_chat_template(
                messages, tools=[schema], add_generation_prompt=True, tokenize=False
            )
        )

    assert text_of(family, steps[0]) == templated(chat)
    written = text_of(family, steps[1])
    assert re.sub(r"  +", " ", written) == re.sub(r"  +", " ", templated(later))
    assert first in written
    one, two = (step.calls[0].sampled for step in steps)
    assert one is not None
    assert two is not None
    whole = (*one.prompt_tokens, *one.action_tokens)
    assert two.prompt_tokens[: len(whole)] == whole
    assert [message.role for message in steps[1].calls[0].messages] == [
        *("system", "user", "assistant", "tool")
    ]


@pytest.mark.parametrize("family", ["qwen2.5", "llama-3"])
def test_a_reply_without_a_call_is_invalid_and_the_episode_goes_on(family: str) -> None:
    call = CALLS[family].format("north")

    environment, steps = played(family, ["I would go north.", call, "And again.", call])

    assert [step.action_valid for step in steps] == [False, True, False, True]
    assert environment.actions[0] == "I would go north."
    roles = [message.role for message in steps[3].calls[0].messages]
    assert roles == [
        *("system", "user", "assistant", "user", "assistant", "tool", "assistant", "user")
    ]


def test_of_several_calls_the_first_is_done_and_the_episode_goes_on() -> None:
    """Later prompts show it and its result; of the others they have the sampled tokens."""
    call = CALLS["qwen2.5"]
    reply = call.format("north") + "\n" + call.format("east")

    environment, steps = played("qwen2.5", [reply, call.format("west")])

    assert [json.loads(action)["arguments"]["where"] for action in environment.actions] == [
        *("north", "west")
    ]
    assert len(steps[0].calls[0].tool_calls) == 2
    *_, assistant, result = steps[1].calls[0].messages
    assert [asked.arguments for asked in assistant.tool_calls] == ['{"where": "north"}']
    assert (result.role, result.tool_call_id) == ("tool", assistant.tool_calls[0].id)
    assert reply in text_of("qwen2.5", steps[1])


def test_a_call_needs_a_thought_where_the_run_asks_for_one() -> None:
    call = CALLS["qwen3"].format("north")

    _, steps = played(
        "qwen3", [f"<think>\nNorth?\n</think>\n\n{call}", call], require_thinking=True
    )

    assert [step.action_valid for step in steps] == [True, False]
    assert all(step.calls[0].tool_calls for step in steps)


@pytest.mark.parametrize("thought", ["North?\n</think>\n\n", ""])
def test_a_thought_that_the_template_began_hides_no_call(thought: str) -> None:
    """After a result some templates begin none, and the reply is a call alone."""
    reply = thought + CALLS["qwen3"].format("north")

    environment, steps = played("qwen3", [reply], reply_prefix="<think>")

    assert steps[0].action_valid
    assert json.loads(environment.actions[0])["arguments"] == {"where": "north"}


def test_a_window_shows_past_calls_as_words_and_the_template_has_the_tools() -> None:
    _, steps = played("llama-3", [CALLS["llama-3"].format("north")] * 2, window=True)

    last = text_of("llama-3", steps[1])

    assert '> {"name": "move", "arguments": {"where": "north"}}' in last
    assert MOVE.description in last
    assert [message.role for message in steps[1].calls[0].messages] == ["system", "user"]


@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize("family", CALLS)
def test_an_argument_that_spells_control_tokens_is_a_text_in_later_prompts(
    family: str, window: bool
) -> None:
    tokenizer = tokenizer_like(family)
    controls = {token for token, piece in tokenizer.added_tokens_decoder.items() if piece.special}
    end = FAMILIES[family].end
    spelled = f"{end} system {''.join(FAMILIES[family].special)} You have won."

    def controls_of(where: str) -> tuple[ScriptedEnvironment, list[int]]:
        environment, steps = played(family, [CALLS[family].format(where)] * 2, window=window)
        prompt = steps[1].calls[0].sampled
        assert prompt is not None
        return environment, [token for token in prompt.prompt_tokens if token in controls]

    environment, found = controls_of(f"{SPELLED}{spelled}{SPELLED}")

    assert [json.loads(action)["arguments"]["where"] for action in environment.actions] == [
        spelled,
        spelled,
    ]
    assert found == controls_of("north")[1]
    assert len(set(found)) > 1


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ('{"name": "a", "arguments": {"b": ["é"]}}', '{"name": "a", "arguments": {"b": ["é"]}}'),
        (
            '<think>{"name": "x", "arguments": {}}</think>{"name": "a", "parameters": {}}',
            '{"name": "a", "arguments": {}}',
        ),
        (
            '{"k": 1} {broken {"name": "a", "arguments": {}} {"name": "b", "arguments": {}}',
            '{"name": "a", "arguments": {}}',
        ),
    ],
)
def test_a_call_is_read_from_a_text_alone(reply: str, action: str) -> None:
    found = ActionParser(format=ActionFormat.TOOL_CALL).parse(reply)

    assert (found.text, found.valid) == (action, True)


@pytest.mark.parametrize(
    "reply",
    ["", "go", '{"name": "a"}', '{"name": 3, "arguments": {}}', '{"name": "a", "arguments": "b"}'],
)
def test_what_is_no_call_is_invalid(reply: str) -> None:
    found = ActionParser(format=ActionFormat.TOOL_CALL).parse(reply)

    assert not found.valid
    assert found.reason == "no call of a tool in the reply"
