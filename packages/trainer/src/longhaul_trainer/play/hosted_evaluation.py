"""A panel played by a hosted model: by our loop or by a run's program, in this process.

No learner, no engine and no Ray: the environments play in their own worker processes, and the
model is another server's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from longhaul_core.errors import ConfigError
from longhaul_core.policy import NoTokens
from longhaul_core.rollout import (
    EpisodeOutcome,
    EpisodeSpec,
    Responder,
    episode_seed,
)
from longhaul_core.store.records import Evaluation, PanelTasks, Record
from longhaul_core.tasks import Panel
from longhaul_core.types import Message, Split
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.agent_loops import AgentLoop
from longhaul_trainer.gateway.exchange import ApiError, ChatRequest
from longhaul_trainer.gateway.hosted import Endpoint, HostedModel
from longhaul_trainer.gateway.hosted.policy import UpstreamPolicy
from longhaul_trainer.play.environments import descriptions_of, task_panel
from longhaul_trainer.play.episode_run import EpisodeRun, Plan, Played
from longhaul_trainer.play.players import EnvironmentPlayer, Player
from longhaul_trainer.play.programs.player import ProgramPlayer
from longhaul_trainer.run.directory import PanelScore, RunDirectory, RunOutcome

__all__ = ["Spent", "for_hosted", "hosted_player", "require_answer", "run_hosted_evaluation"]

PROBE_TOKENS = 16
"""Longest reply to the request that tries an endpoint; vendors refuse fewer."""


@dataclass(slots=True)
class Spent:
    """What the calls of an evaluation came to."""

    num_calls: int = 0
    num_priced: int = 0
    cost_usd: float = 0.0
    """Of the priced ones."""

    def add(self, outcome: EpisodeOutcome) -> None:
        """Count the calls of an episode."""
        for step in outcome.steps:
            for call in step.calls:
                self.num_calls += 1
                if call.cost_usd is not None:
                    self.num_priced += 1
                    self.cost_usd += call.cost_usd

    def heard(self, outcome: EpisodeOutcome) -> str:
        """The same; returns what they cost so far, where a price is known."""
        self.add(outcome)
        return f"${self.cost_usd:.4f}" if self.num_priced else ""

    def in_words(self) -> str:
        """The calls, and their cost where it is known."""
        calls = f"{self.num_calls:,} calls"
        if not self.num_priced:
            return f"{calls}; cost unknown, give --price-prompt and --price-reply"
        of = "" if self.num_priced == self.num_calls else f" for {self.num_priced:,} of them"
        return f"${self.cost_usd:,.4f}{of}; {calls}"


def for_hosted(config: RunConfig, *, name: str) -> tuple[RunConfig, bool]:
    """The run as a hosted model plays it.

    A hosted chat cannot be made to begin its reply with a prefix, so prompts ask for the action's
    format in its place.

    Args:
        config: The run.
        name: Of the model, which stands where a run has its weights.

    Returns:
        The run, and whether it had such a prefix.
    """
    plain = {"reply_prefix": ""}
    had = any(entry.prompt.reply_prefix for entry in config.played_environments)
    entries = tuple(
        entry.model_copy(update={"prompt": entry.prompt.model_copy(update=plain)})
        for entry in config.environments
    )
    changed = {
        "model": config.model.model_copy(update={"path": name}),
        "prompt": config.prompt.model_copy(update=plain),
        "environments": entries,
    }
    # What is left out stays so: a section that was not given is one that nobody chose.
    if "prompt" not in config.model_fields_set:
        del changed["prompt"]
    return config.model_copy(update=changed), had


async def require_answer(endpoint: Endpoint, *, temperature: float | None) -> None:
    """Send one small request, drawn as the vendor does where `temperature` is None.

    Raises:
        ConfigError: It got no reply: the address, the model or the key is wrong, or the endpoint
            is down.
    """
    model = HostedModel(replace(endpoint, max_retries=min(endpoint.max_retries, 2)))
    request = ChatRequest(
        model=endpoint.model,
        messages=(Message(role="user", content="Reply with the word yes."),),
        max_tokens=PROBE_TOKENS,
        temperature=temperature,
    )
    try:
        await model.answer(request, on_delta=None)
    except ApiError as error:
        raise ConfigError(
            f"the endpoint did not answer a first, small request: {error.message}\nCheck "
            "--endpoint, --model, --api and --key-variable"
        ) from error
    finally:
        await model.close()


def run_hosted_evaluation(
    config: RunConfig,
    run: RunDirectory,
    *,
    split: Split,
    endpoint: Endpoint,
    max_reply_tokens: int | None,
    spent: Spent,
    console: Console,
) -> RunOutcome:
    """Play the panel of a split, and store the episodes.

    Args:
        config: With absolute paths, made by `for_hosted`.
        run: The run's folder, locked by the caller.
        split: Which panel.
        endpoint: The model.
        max_reply_tokens: Longest reply in an environment; None is the run's.
        spent: Counts the calls and what they cost.
        console: For the progress.

    Returns:
        How it ended: finished, or cancelled by Ctrl-C, SIGTERM, SIGHUP or from another terminal,
        with what was played until then.

    Raises:
        ConfigError: The panel cannot be had as the run describes it.
        AllFailedError: Every episode failed.
        StoreError: The store refused.
    """
    panel = task_panel(config, split)
    samples = config.validation.samples_per_task
    plan = Plan(
        kind="evaluate",
        phase="test" if split is Split.TEST else "validation",
        specs=[
            EpisodeSpec(
                task=task,
                seed=episode_seed(
                    config.seed,
                    training_step=0,
                    group_index=place,
                    sample_index=sample,
                    phase=split.value,
                ),
                group_index=place,
                sample_index=sample,
            )
            for place, task in enumerate(panel.tasks)
            for sample in range(samples)
        ],
        group_size=samples,
        max_retries=config.rollout.max_retries if config.rollout.on_failure == "retry" else 0,
    )
    played = EpisodeRun(config, run, plan, heard=spent.heard)
    scores = _Scores(run.run_id, panel, num_samples=samples)

    async def play() -> RunOutcome:
        model = HostedModel(endpoint)
        try:
            return await played.play(
                lambda: hosted_player(config, model, endpoint, max_reply_tokens=max_reply_tokens),
                console,
                before=scores.tasks(),
                after=lambda: scores.evaluations(played.results),
            )
        finally:
            await model.close()

    outcome = asyncio.run(play())
    return replace(outcome, after=scores.of(panel, played.results) if played.results else None)


def hosted_player(
    run: RunConfig, model: HostedModel, endpoint: Endpoint, *, max_reply_tokens: int | None
) -> Player:
    """Plays the run's episodes by a hosted model.

    Args:
        run: Made by `for_hosted`.
        model: Answers; the caller closes it.
        endpoint: Where it is.
        max_reply_tokens: Longest reply in an environment; None is the run's.
    """
    if run.agent.is_program:
        return ProgramPlayer(run, responder=model, name=endpoint.model)
    responder = Responder(
        policy=UpstreamPolicy(model, name=endpoint.model),
        renderer=NoTokens(),
        max_reply_tokens=max_reply_tokens or run.rollout.max_reply_tokens,
    )
    return EnvironmentPlayer(
        run,
        responders={"": responder},
        descriptions=descriptions_of(run),
        agent_loop=AgentLoop(),
    )


@dataclass(frozen=True, slots=True)
class _Scores:
    """Of a panel, and of each environment where it has several."""

    run_id: str
    panel: Panel
    num_samples: int

    def tasks(self) -> list[Record]:
        """What is played."""
        panels = {self.panel.split.value: self.panel} | self.panel.parts
        return [
            PanelTasks(run_id=self.run_id, name=name, split=panel.split, tasks=panel.tasks)
            for name, panel in panels.items()
        ]

    def of(self, panel: Panel, results: Sequence[Played]) -> PanelScore:
        """The score of some results."""
        return PanelScore.of(
            ((each.place, each.episode_return, each.success) for each in results),
            num_planned=len(panel.tasks) * self.num_samples,
        )

    def evaluations(self, results: Sequence[Played]) -> list[Record]:
        """All of them."""
        scores = [self._evaluation(self.panel.split.value, self.panel, results)]
        for name, part in self.panel.parts.items():
            environment = part.tasks[0].environment
            if played := [each for each in results if each.environment == environment]:
                scores.append(self._evaluation(name, part, played))
        return [*scores]

    def _evaluation(self, name: str, panel: Panel, results: Sequence[Played]) -> Evaluation:
        score = self.of(panel, results)
        return Evaluation(
            run_id=self.run_id,
            attempt=0,
            training_step=0,
            panel=name,
            split=self.panel.split,
            num_episodes=score.num_episodes,
            mean_return=score.mean_return,
            success_rate=score.success_rate,
        )
