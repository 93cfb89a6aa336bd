"""Tests for `longhaul_trainer.play.programs.player`: a run's program, in each of its phases."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import openai
import pytest

from fakes import ScriptedPolicy, StreamingScriptedPolicy, make_task
from gateways import responder_of
from hosted_endpoint import hosted_by_gateway
from longhaul_core.errors import ConfigError
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.rollout import EpisodeLimits, EpisodeOutcome, EpisodeSpec
from longhaul_core.store.records import Phase
from longhaul_core.types import FailedEpisode, FailureCause, Trajectory
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.load import parse_config
from longhaul_trainer.play.programs.player import ProgramPlayer
from longhaul_trainer.play.programs.program import Endpoint

LIMITS = EpisodeLimits(horizon=3, max_prompt_tokens=10_000)


async def one_call(task: dict[str, object], endpoint: Endpoint) -> float:
    async with openai.AsyncOpenAI(**endpoint.openai, max_retries=0) as client:
        await client.chat.completions.create(
            model=str(task.get("model", "auto")),
            messages=[{"role": "user", "content": "Which way?"}],
            temperature=0.3,
            extra_body={"longhaul": {"train": task.get("train", True)}},
        )
    return 1.0


async def endless(task: dict[str, object], endpoint: Endpoint) -> float:
    async with openai.AsyncOpenAI(**endpoint.openai, max_retries=0) as client:
        for turn in range(100):
            await client.chat.completions.create(
                model="my-model", messages=[{"role": "user", "content": str(turn)}]
            )
    return 1.0


def grade(graded: object) -> dict[str, object]:
    return {"reward": 0.25, "success": True}


class Sampled(StreamingScriptedPolicy):
    """Keeps how each reply was to be drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Sampling] = []

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        self.asked.append(sampling)
        return await super().act(prompt, sampling, episode_id=episode_id)


def run_of(function: str = "one_call", **settings: Any) -> RunConfig:  # noqa: ANN401
    name = f"trainer.play.programs.test_player:{function}"
    return RunConfig.model_validate(
        {
            "num_training_steps": 1,
            "tasks_per_training_step": 1,
            "model": {"path": "/models/my-model"},
            "rollout": {"temperature": 0.9, "top_p": 0.8},
            "validation": {"temperature": 0.5},
            "agent": {"kind": "function", "function": name} | settings,
        }
    )


def played(
    run: RunConfig,
    *,
    phase: Phase = "train",
    policy: StreamingScriptedPolicy | None = None,
    data: str = "{}",
    limits: EpisodeLimits = LIMITS,
    with_final_prompt: bool = False,
) -> EpisodeOutcome:
    async def play() -> EpisodeOutcome:
        player = ProgramPlayer(run, responder=responder_of(policy))
        try:
            return await player.play(
                EpisodeSpec(task=replace(make_task(), data=data), seed=7),
                phase=phase,
                training_step=1,
                limits=limits,
                with_final_prompt=with_final_prompt,
                stop=asyncio.Event(),
            )
        finally:
            await player.close()

    return asyncio.run(play())


@pytest.mark.parametrize(
    ("phase", "temperature", "top_p"),
    [("train", 0.9, 0.8), ("baseline", 0.0, 1.0), ("validation", 0.5, 1.0), ("test", 0.5, 1.0)],
)
def test_replies_are_drawn_as_the_phase_says_whatever_the_program_asks(
    phase: Phase, temperature: float, top_p: float
) -> None:
    policy = Sampled()

    outcome = played(run_of(), phase=phase, policy=policy)

    assert isinstance(outcome, Trajectory), outcome
    if phase in ("train", "baseline"):  # elsewhere nothing is trained, and a program may choose
        assert [(one.temperature, one.top_p) for one in policy.asked] == [(temperature, top_p)]
    assert outcome.episode_return == 1.0


def test_a_run_may_let_the_program_choose_its_temperature() -> None:
    policy = Sampled()

    played(run_of(allow_sampling=True), policy=policy)

    assert [one.temperature for one in policy.asked] == [0.3]


@pytest.mark.parametrize("phase", ["train", "baseline"])
def test_an_episode_without_a_trained_call_has_failed_where_it_would_be_learned_from(
    phase: Phase,
) -> None:
    outcome = played(run_of(), phase=phase, data='{"train": false}')

    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is FailureCause.PROGRAM_ERROR
    assert "let the program ask the model `auto`" in outcome.message


def test_the_policy_answers_by_the_models_own_name_until_the_horizon() -> None:
    outcome = played(run_of("endless", grader="trainer.play.programs.test_player:grade"))

    assert isinstance(outcome, Trajectory), outcome
    assert len(outcome.steps) == LIMITS.horizon
    assert outcome.stop_reason.truncated
    assert (outcome.episode_return, outcome.success) == (0.25, True)


def test_the_policy_answers_by_a_name_that_a_program_has_in_its_code() -> None:
    asked = '{"model": "gpt-4o-mini"}'

    outcome = played(run_of(model_names=["gpt-4o", "gpt-4o-mini"]), data=asked)
    refused = played(run_of(), data=asked)

    assert isinstance(outcome, Trajectory), outcome
    assert [call.trained for call in outcome.steps[0].calls] == [True]
    assert isinstance(refused, FailedEpisode)
    assert "'gpt-4o-mini' is not here" in refused.message


def test_a_limit_on_calls_is_the_runs() -> None:
    limited = run_of("endless", grader="trainer.play.programs.test_player:grade", max_calls=2)

    outcome = played(limited)

    assert isinstance(outcome, Trajectory), outcome
    assert len(outcome.steps) == 2


async def turns(task: dict[str, Any], endpoint: Endpoint) -> dict[str, Any] | None:
    """A call for each text; one that is refused is sent again, shortened, if the task says so.

    Its result is the task's; without one, its steps are paid nothing.
    """
    paid = {} if task.get("result") else {"reward": 0.0}
    async with openai.AsyncOpenAI(**endpoint.openai, max_retries=0) as client:
        for text, train in task["turns"]:

            async def ask(content: str, *, train: bool = train) -> None:
                await client.chat.completions.create(
                    model="auto",
                    messages=[{"role": "user", "content": content}],
                    extra_body={"longhaul": {"train": train} | paid},
                )

            try:
                await ask(text)
            except openai.BadRequestError:
                if not task.get("shortens"):
                    break
                await ask("short")
    return task.get("result")


def outcome_of_turns(
    *turns: tuple[str, bool],
    with_final_prompt: bool = True,
    shortens: bool = False,
    result: dict[str, Any] | None = None,
    **limits: int,
) -> Trajectory:
    outcome = played(
        run_of("turns", max_calls=limits.pop("max_calls", None)),
        data=json.dumps({"turns": turns, "shortens": shortens, "result": result}),
        limits=replace(LIMITS, **({"horizon": 9} | limits)),
        with_final_prompt=with_final_prompt,
    )
    assert isinstance(outcome, Trajectory), outcome
    return outcome


def prompts_of(trajectory: Trajectory) -> list[tuple[int, ...]]:
    return [
        call.sampled.prompt_tokens
        for step in trajectory.steps
        for call in step.calls
        if call.sampled is not None
    ]


ONE, TWO, THREE = ("one", True), ("two", True), ("three", True)


@pytest.mark.parametrize("limit", [{"horizon": 2}, {"max_calls": 2}, {"max_prompt_tokens": 55}])
def test_the_prompt_that_a_limit_refused_is_what_a_critic_values_of_the_end(
    limit: dict[str, Any],
) -> None:
    long = ("three" * 20, True)
    whole, cut = outcome_of_turns(ONE, TWO, long), outcome_of_turns(ONE, TWO, long, **limit)

    assert cut.stop_reason.truncated
    assert prompts_of(cut) == prompts_of(whole)[:2]
    longest = limit.get("max_prompt_tokens", 10_000)
    assert cut.final_prompt_tokens == prompts_of(whole)[2][-longest:]
    assert whole.final_prompt_tokens is None  # it ended by itself
    unvalued = outcome_of_turns(ONE, TWO, long, with_final_prompt=False, **limit)
    assert unvalued.final_prompt_tokens is None


def test_where_a_limit_refused_another_call_the_newest_prompt_of_the_policy_stands_for_it() -> None:
    cut = outcome_of_turns(ONE, TWO, ("of a judge", False), max_calls=2)

    assert cut.stop_reason.truncated
    assert cut.final_prompt_tokens == prompts_of(cut)[1]


@pytest.mark.parametrize(
    ("result", "scored"),
    [
        ({"reward": 0.25}, True),
        ({"reward": 0.0, "success": False}, True),
        ({"step_rewards": [0.0, 0.5], "success": True}, True),
        ({"step_rewards": [0.0, 0.5], "success": False}, False),
        ({"step_rewards": [0.5, 0.5]}, False),  # it counts as solved, and may earn more
    ],
)
def test_an_episode_that_is_scored_at_its_end_has_no_prompt_to_value_it_by(
    result: dict[str, Any], *, scored: bool
) -> None:
    cut = outcome_of_turns(ONE, TWO, THREE, result=result, horizon=2)
    by_another = outcome_of_turns(ONE, TWO, ("judge", False), result=result, max_calls=2)

    for episode in (cut, by_another):
        assert episode.stop_reason.truncated
        assert episode.scored == scored
        assert (episode.final_prompt_tokens is None) == scored


def test_a_program_that_shortens_a_refused_prompt_and_ends_has_no_final_prompt() -> None:
    ended = outcome_of_turns(ONE, ("two" * 40, True), shortens=True, max_prompt_tokens=100)
    cut = outcome_of_turns(
        *(ONE, ("two" * 40, True), THREE), shortens=True, max_prompt_tokens=100, horizon=2
    )

    assert ended.stop_reason.terminated
    assert ended.final_prompt_tokens is None
    assert cut.stop_reason.truncated
    whole = outcome_of_turns(ONE, ("short", True), THREE)
    assert cut.final_prompt_tokens == prompts_of(whole)[2]


def test_episodes_at_once_have_one_gateway() -> None:
    async def play() -> list[EpisodeOutcome]:
        player = ProgramPlayer(run_of(), responder=responder_of())
        playing = (
            player.play(
                EpisodeSpec(task=replace(make_task(), data="{}"), seed=seed, sample_index=seed),
                phase="train",
                training_step=1,
                limits=LIMITS,
                with_final_prompt=False,
                stop=asyncio.Event(),
            )
            for seed in range(8)
        )
        try:
            return await asyncio.gather(*playing)
        finally:
            await player.close()

    assert all(isinstance(outcome, Trajectory) for outcome in asyncio.run(play()))


async def judged(task: dict[str, object], endpoint: Endpoint) -> float:
    async with openai.AsyncOpenAI(**endpoint.openai, max_retries=0) as client:
        for model in ("auto", "judge"):
            stream = await client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": "Which way?"}],
                stream=True,
            )
            async for _ in stream:
                pass
    return 1.0


def test_a_program_asks_a_hosted_model_by_its_name_and_the_call_is_stored_untrained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hosted_by_gateway(ScriptedPolicy(["good"])) as hosted:
        monkeypatch.setenv("JUDGE_KEY", hosted.key)
        judge = {
            "url": hosted.anthropic,
            "model": "auto",
            "api": "anthropic",
            "api_key_variable": "JUDGE_KEY",
            "price_prompt": 1.0,
            "price_reply": 2.0,
        }
        run = run_of("judged", upstreams={"judge": judge})
        outcome = played(run)

    assert isinstance(outcome, Trajectory), outcome
    own, of_judge = outcome.steps[0].calls
    assert (own.model, own.trained, own.cost_usd) == ("", True, None)
    assert (of_judge.model, of_judge.trained, of_judge.sampled) == ("judge", False, None)
    assert of_judge.reply == "good"
    assert of_judge.cost_usd
    assert of_judge.generate_seconds > 0
    assert hosted.key not in run.to_toml()
    assert parse_config(run.to_toml()) == run


def test_an_upstream_has_a_key_and_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    judge = {"url": "http://judge", "model": "m"}

    with pytest.raises(ConfigError, match=r"upstreams\.judge\.api_key_variable.*is not set"):
        played(run_of(upstreams={"judge": judge | {"api_key_variable": "JUDGE_KEY"}}))
    with pytest.raises(ConfigError, match=r"name of the run's own model"):
        played(run_of(upstreams={"my-model": judge}))
