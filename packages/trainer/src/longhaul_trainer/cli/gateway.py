"""`trainer gateway`: a model behind the gateway alone, for an agent that is tried by hand."""

import asyncio
import json
import os
import secrets
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import urlsplit

import typer

from longhaul_core.addresses import direct
from longhaul_core.errors import ConfigError
from longhaul_core.serving import bound_socket
from longhaul_trainer.cli.arguments import (
    DEFAULT_RUN,
    Checkpoint,
    Overrides,
    RunsDirectory,
    SkipDoctor,
    Store,
    console_of,
)
from longhaul_trainer.cli.endpoint import HostedOptions, takes_hosted_model
from longhaul_trainer.cli.evaluate import WeightsOfRun, is_model, with_weights
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.train import EXIT_CODE_OF_STATUS, carry_out, check_machine, serving
from longhaul_trainer.config import RolloutConfig, RunConfig
from longhaul_trainer.run.directory import RunDirectory
from longhaul_trainer.run.ending_signals import ending_signals

if TYPE_CHECKING:
    from longhaul_core.rollout import EpisodeLimits, Responder
    from longhaul_core.store.records import EpisodeRecord
    from longhaul_trainer.config.calls import CallKind
    from longhaul_trainer.gateway.hosted import Endpoint
    from longhaul_trainer.gateway.upstream import Upstream
    from longhaul_trainer.play.served_model import ServedModel

LONGEST_PROMPT = 1_000_000
"""Tokens: no bound of ours, since a hosted model has its own."""


LONGEST_CALL, LONGEST_REPLY = 8192, 1024
"""Tokens of a prompt with its reply, and of a reply, of a model that no run describes."""


class Place(NamedTuple):
    """Where a gateway listens, and how much an episode may be."""

    host: str
    port: int
    max_calls: int | None
    max_steps: int


@takes_hosted_model
def gateway(  # noqa: PLR0913  options of a command
    overrides: Overrides = None,
    *,
    checkpoint: Checkpoint = None,
    weights: WeightsOfRun = None,
    description: Annotated[
        str | None,
        typer.Option(
            "--config",
            help="For a model folder: the run whose settings it has.",
            show_default=f"default, with calls of up to {LONGEST_CALL} tokens",
        ),
    ] = None,
    hosted: HostedOptions,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8400,
    max_calls: Annotated[
        int | None, typer.Option(min=1, help="Most calls of an episode.", show_default="no limit")
    ] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Most steps of an episode.")] = 1000,
    store: Store = None,
    runs_directory: RunsDirectory = Path("runs"),
    skip_doctor: SkipDoctor = False,
) -> None:
    """Serve a hosted model, or weights of ours, by the gateway alone, and store what agents do.

    It prints the environment variables of an open episode. The agent ends it by posting `done`
    (`longhaul.step(done=True)`), and the next one opens; POST /episodes opens further ones. Ctrl-C
    ends.
    """
    place = Place(host, port, max_calls, max_steps)
    if checkpoint is not None:
        hosted.refuse(", and --checkpoint for one of us")
        if description is None and is_model(checkpoint):
            overrides = [*_calls_of_an_agent(checkpoint), *(overrides or ())]
        config, name = with_weights(
            checkpoint,
            overrides,
            weights=weights,
            description=description or DEFAULT_RUN,
            runs_directory=runs_directory,
        )
        if store is not None:
            config = config.model_copy(update={"store": store})
        bound_socket(host, port).close()  # weights take minutes to be loaded
        raise typer.Exit(_serve_weights(config, name, place=place, skip_doctor=skip_doctor))
    endpoint = hosted.described()
    if endpoint is None:
        raise ConfigError(
            "give the model's address as --endpoint, and its name as --model; or weights as "
            "--checkpoint"
        )
    if overrides or weights is not None:
        said = overrides[0] if overrides else "--weights"
        raise ConfigError(f"{said} is for weights of ours; name them as --checkpoint")
    bound_socket(host, port).close()
    raise typer.Exit(
        asyncio.run(_serve_hosted(endpoint, place=place, store=store or "longhaul.db"))
    )


def _calls_of_an_agent(model: str) -> list[str]:
    """Settings by which prompts and replies are as long as agents' are, where the model reads them.

    Args:
        model: A built-in name, or a Hugging Face folder.
    """
    from longhaul_trainer.preflight.resources.model_size import model_size

    context = model_size(model, setting="--checkpoint").context_tokens or LONGEST_CALL
    longest_call = min(context, LONGEST_CALL)
    reply = min(LONGEST_REPLY, longest_call // 4)
    return [
        f"rollout.max_prompt_tokens={longest_call - reply}",
        f"rollout.max_reply_tokens={reply}",
    ]


def _serve_weights(config: RunConfig, name: str, *, place: Place, skip_doctor: bool) -> ExitCode:
    """Serve by the whole training stack, as an evaluation plays."""
    folder = Path(config.runs_directory) / "gateways"
    # A trainer has a panel; this one plays none of it, however few tasks there are.
    changed = {
        "name": "gateway",
        "runs_directory": str(folder),
        "trackers": (),
        "validation": config.validation.model_copy(update={"num_tasks": 1, "test_num_tasks": 1}),
    }
    config = config.model_copy(update=changed).with_absolute_paths(Path.cwd())
    check_machine(config, skip=skip_doctor, trains=False)
    run = RunDirectory.create(config)

    async def serve(served: "ServedModel") -> None:
        from longhaul_core.rollout import EpisodeLimits

        rollout = config.rollout
        await _by_hand(
            served.responder,
            names=(name, *config.agent.policy_names),
            kinds=config.agent.calls,
            run_id=served.run_id,
            store=served.store,
            limits=EpisodeLimits(
                horizon=place.max_steps,
                max_prompt_tokens=rollout.max_prompt_tokens,
                max_episode_tokens=rollout.max_episode_tokens,
                policy_deadline_seconds=rollout.policy_deadline_seconds,
                close_deadline_seconds=1.0,
            ),
            place=place,
            said=_Said(served.say, config.rollout),
        )

    with run.locked():
        outcome = carry_out(config, run, serving(serve))
    return EXIT_CODE_OF_STATUS[outcome.status]


async def _serve_hosted(endpoint: "Endpoint", *, place: Place, store: str) -> ExitCode:
    from longhaul_core.rollout import EpisodeLimits
    from longhaul_trainer.gateway.hosted import HostedModel
    from longhaul_trainer.play.hosted_evaluation import require_answer
    from longhaul_trainer.run.provenance import collect_provenance
    from longhaul_trainer.run.stored_run import StoredRun

    await require_answer(endpoint, temperature=None)
    console = console_of("stdout")
    said = _Said(lambda line: console.print(line, markup=False))
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    run = StoredRun(store, run_id=f"{now}-gateway-{secrets.token_hex(2)}")
    described = {"url": endpoint.url, "model": endpoint.model, "api": endpoint.api}
    await run.start(
        name="gateway",
        config_json=json.dumps({"model": {"path": endpoint.model}, "endpoint": described}),
        provenance_json=collect_provenance(model_sha256=None, command=sys.argv).to_json(),
    )
    hosted = HostedModel(endpoint)
    try:
        async with run.recording_failure():
            cancelled = await _by_hand(
                hosted,
                names=(endpoint.model,),
                run_id=run.run_id,
                store=lambda record: run.write([record]),
                limits=EpisodeLimits(
                    horizon=place.max_steps,
                    max_prompt_tokens=LONGEST_PROMPT,
                    close_deadline_seconds=1.0,
                ),
                place=place,
                said=said,
                cancelled=run.until_cancelled(),
            )
            status = "cancelled" if cancelled else "finished"
            await run.end(status, message="trainer runs cancel" if cancelled else "")
    finally:
        await hosted.close()
        run.close()
    said.over(run.run_id, store=store)
    return EXIT_CODE_OF_STATUS[status]


async def _by_hand(  # noqa: PLR0913  what its episodes are played with
    model: "Responder | Upstream",
    *,
    names: Sequence[str],
    run_id: str,
    store: "Callable[[EpisodeRecord], Awaitable[None]]",
    limits: "EpisodeLimits",
    place: Place,
    said: "_Said",
    kinds: "tuple[CallKind, ...]" = (),
    cancelled: Coroutine[None, None, None] | None = None,
) -> bool:
    """Serve until a signal, or until `cancelled` returns; whether that ended it.

    A second Ctrl-C ends the process as usual, also where the store is held.
    """
    from longhaul_trainer.gateway.episode import CallRules
    from longhaul_trainer.play.programs.by_hand import GatewayByHand

    by_hand = GatewayByHand(
        model,
        names=names,
        run_id=run_id,
        store=store,
        rules=CallRules(trains=False, allows_sampling=True, max_calls=place.max_calls, kinds=kinds),
        limits=limits,
        host=place.host,
        port=place.port,
        on_open=said.opened,
        on_end=said.ended,
    )
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        by_hand.stop()
        said.ending()

    others = ending_signals()
    loop.add_signal_handler(signal.SIGINT, interrupted)
    for number in others:
        loop.add_signal_handler(number, by_hand.stop)
    watching: list[asyncio.Task[None]] = []
    if cancelled is not None:
        watching = [asyncio.create_task(cancelled)]
        watching[0].add_done_callback(lambda task: by_hand.stop())
    said.begun(run_id, key=by_hand.key)
    try:
        await by_hand.serve()
    finally:
        for task in watching:
            task.cancel()
        ended = await asyncio.gather(*watching, return_exceptions=True)
        for number in (signal.SIGINT, *others):
            loop.remove_signal_handler(number)
    for failure in ended:
        if isinstance(failure, Exception):  # the gateway was stopped by it
            raise failure
    return None in ended


class _Said:
    """What is printed: lines that a shell may read, and comments for people."""

    def __init__(self, line: Callable[[str], None], rollout: RolloutConfig | None = None) -> None:
        """What is printed by `line`; with the limits of a call where they are ours."""
        self._line = line
        self._rollout = rollout
        self._num_stored = 0

    def begun(self, run_id: str, *, key: str) -> None:
        self._line(f"# {run_id}; Ctrl-C ends. Another episode: POST /episodes with this key:")
        self._line(f"export LONGHAUL_GATEWAY_KEY={shlex.quote(key)}")
        if (rollout := self._rollout) is not None:
            self._line(
                f"# longest prompt: {rollout.max_prompt_tokens} tokens (rollout.max_prompt_tokens);"
                f" longest reply: {rollout.max_reply_tokens} (rollout.max_reply_tokens)"
            )

    def ending(self) -> None:
        self._line("# ending; another Ctrl-C gives up what the store has not taken yet")

    def opened(self, number: int, environ: Mapping[str, str]) -> None:
        self._line(f"# episode {number} is open: let your agent have these")
        host = urlsplit(environ["LONGHAUL_URL"]).hostname or ""
        for name, value in {**direct(os.environ, host), **environ}.items():
            self._line(f"export {name}={shlex.quote(value)}")

    def ended(self, number: int, record: "EpisodeRecord") -> None:
        from longhaul_core.types import Trajectory

        self._num_stored += 1
        outcome = record.outcome
        if isinstance(outcome, Trajectory):
            how = f"return {outcome.episode_return:g}, {outcome.stop_reason.value}"
        else:
            how = f"{outcome.cause.value}: {outcome.message}"
        self._line(f"# episode {number}: {len(outcome.steps)} steps, {how}")

    def over(self, run_id: str, *, store: str) -> None:
        self._line(f"# {self._num_stored} episodes of run {run_id} are in {store}")
        self._line(f"# look: uv run viewer --store {store}")
