"""Weights behind a gateway that stands alone, on the engine that a run plays with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from longhaul_core.rollout import Responder
from longhaul_core.store.records import EpisodeRecord
from longhaul_trainer.play.players import temperature_of
from longhaul_trainer.play.served_model import ServedModel
from longhaul_trainer.rendering.pictures import picture_reader
from longhaul_trainer.run.context import RunContext
from longhaul_trainer.verl.agent_loop import TokenTexts, responder_of
from longhaul_trainer.verl.run_recorder import RunRecorder, WriterLost, write_here

if TYPE_CHECKING:
    from longhaul_trainer.verl.trainer import LonghaulTrainer

logger = logging.getLogger(__name__)

Serve = Callable[[ServedModel], Coroutine[None, None, None]]
"""Answers for as long as somebody wants; runs on an event loop of its own."""


async def serve_model(
    serve: Serve,
    trainer: LonghaulTrainer,
    run_context: RunContext,
    recorder: RunRecorder,
    say: Callable[[str], None],
) -> None:
    """Serve the weights of a trainer that has been initialised.

    Args:
        serve: What is done with them.
        trainer: Its engines have the weights; nothing is trained.
        run_context: Of the run.
        recorder: The run's way to the store.
        say: Prints a line in the terminal.
    """
    run = run_context.config
    client = trainer.get_llm_client()
    pictures = picture_reader(trainer.processor, grey=run.model.pictures == "grey")

    def responder_after(prefix: str) -> Responder:
        return responder_of(
            run,
            client,
            trainer.tokenizer,
            pictures=pictures,
            reply_prefix=prefix,
            temperature=temperature_of(run, "test"),
            top_p=1.0,
        )

    texts = TokenTexts(trainer.tokenizer, run_id=run_context.run_id)

    async def store(record: EpisodeRecord) -> None:
        records = [*await texts.new_in(record.outcome), record]
        try:
            await recorder.commit(records)
        except WriterLost as error:  # by the SIGTERM that stops the gateway
            logger.warning("an episode is written by the gateway's own process: %s", error)
            await asyncio.to_thread(write_here, run.store, records)

    await serve(
        ServedModel(
            responder=responder_after(""),
            responder_after=responder_after,
            run_id=run_context.run_id,
            store=store,
            say=say,
        )
    )
