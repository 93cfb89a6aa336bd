"""Our agent loop, as `scale.py` has it: the run's own, with its parts timed."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# Ray and verl are typed in part.

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import ray.actor
from scale_meters import SAMPLE_SECONDS, Stopwatch
from transfer_queue.utils.zmq_utils import ZMQMessage
from verl.experimental.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1 import agent_loop_tq

from longhaul_core.actions import ActionParser
from longhaul_core.memory.window import WindowMemory
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer
from longhaul_trainer.verl import agent_loop

PARTS: tuple[tuple[Any, str, str], ...] = (
    (WindowMemory, "compose", "memory"),
    (ChatTemplateRenderer, "render", "template and tokenizer"),
    (ChatTemplateRenderer, "decode", "reply to text"),
    (ActionParser, "parse", "parsing"),
    (ray.actor.ActorMethod, "_remote", "sending by Ray"),
    (agent_loop, "metadata_of", "rows, ours"),
    (agent_loop, "to_rows", "rows, ours"),
    (AgentLoopOutput, "as_dict", "rows, verl's"),
    (agent_loop_tq, "list_of_dict_to_tensordict", "rows, verl's"),
    (ZMQMessage, "serialize", "sending by TransferQueue"),
)
"""Owner, function and label of what is timed; the rest of a loop waits, or is asyncio and Ray."""


class MeasuredAgentLoop(agent_loop.EpisodeAgentLoop):
    """Leaves what the parts of this process took in a file beside the run's context."""

    _started = False

    def __init__(self, *, run_context: str, **others: Any) -> None:  # noqa: ANN401  verl's
        super().__init__(run_context=run_context, **others)
        if not MeasuredAgentLoop._started:
            MeasuredAgentLoop._started = True
            _keep_writing(Path(run_context).with_name(f"parts-{os.getpid()}.json"))


def _keep_writing(path: Path) -> None:
    stopwatch = Stopwatch()
    for part in PARTS:
        stopwatch.watch(*part)

    def write() -> None:
        again = threading.Event()
        while not again.wait(SAMPLE_SECONDS):
            path.with_suffix(".new").write_text(json.dumps(stopwatch.spent), encoding="utf-8")
            path.with_suffix(".new").rename(path)

    threading.Thread(target=write, name="parts", daemon=True).start()
