"""What stands beside the gateway in `gateway.py`: an engine, and a plain proxy before it.

A module of its own, because it starts in a second and the gateway's libraries take several.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# transformers is typed in part.

import asyncio
import json
import os
import random
import socket
import sys
import time
from array import array
from typing import Any, cast

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

NUM_REPLY_TOKENS = 300
NUM_PROMPT_TOKENS = 4_000
SECONDS_PER_TOKEN = 0.02
NUM_STREAMED_TOKENS = 50
REPLY_TOKENS = tuple(1_000 + place for place in range(NUM_REPLY_TOKENS))
REPLY_LOGPROBS = tuple(-0.1 - place / 1_000 for place in range(NUM_REPLY_TOKENS))
WORDS = """
time year people way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work government number night
point home water room mother area money story fact month lot right study book eye job word business
issue side kind head house service friend father power hour game line
""".split()  # noqa: SIM905  a list of words would be a page long


def words(number: int, *, seed: int) -> str:
    """A text of about as many tokens as words."""
    drawn = random.Random(seed)
    return " ".join(drawn.choice(WORDS) for _ in range(number))


# The stand-in engine

_PROMPT_IDS = list(range(2_000, 2_000 + NUM_PROMPT_TOKENS))
REPLY_TEXT = words(NUM_REPLY_TOKENS, seed=0)
_CHAT = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "engine",
        "prompt_token_ids": _PROMPT_IDS,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": REPLY_TEXT},
                "finish_reason": "stop",
                "token_ids": REPLY_TOKENS,
                "logprobs": {
                    "content": [
                        {"token": "word", "logprob": value, "bytes": None, "top_logprobs": []}
                        for value in REPLY_LOGPROBS
                    ]
                },
            }
        ],
        "usage": {"prompt_tokens": 4_000, "completion_tokens": 300, "total_tokens": 4_300},
    }
).encode()
_PACKED = array("i", REPLY_TOKENS).tobytes() + array("d", REPLY_LOGPROBS).tobytes()


async def engine(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers every prompt with the same reply, or the same stream."""
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    kind = b"application/json"
    answer = _PACKED if scope["path"] == "/generate" else _CHAT
    if b'"stream":true' in body.replace(b" ", b""):
        await _streamed(send, seconds_per_token=SECONDS_PER_TOKEN)
        return
    headers = [(b"content-type", kind), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def _streamed(send: Send, *, seconds_per_token: float) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    piece = {"id": "1", "choices": [{"index": 0, "delta": {"content": " word"}}]}
    event = b"data: " + json.dumps(piece).encode() + b"\n\n"
    for _ in range(NUM_STREAMED_TOKENS):
        await asyncio.sleep(seconds_per_token)
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


# A server that makes prompts into tokens


def tokenizing_engine(folder: str) -> ASGIApp:
    """The engine behind a server that reads each body and makes its prompt into tokens.

    It is what a proxy leaves to its upstream: vLLM's server applies the chat template and calls
    the tokenizer of `transformers`.
    """
    from transformers import AutoTokenizer  # takes seconds, and the others need none

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        whole, more = b"", True
        while more:
            message = await receive()
            whole += message.get("body", b"")
            more = message.get("more_body", False)
        text = tokenizer.apply_chat_template(
            json.loads(whole)["messages"], add_generation_prompt=True, tokenize=False
        )
        tokens = tokenizer.encode(text, add_special_tokens=False)
        if not tokens:
            raise ValueError("the prompt has no tokens")
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(_CHAT)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": _CHAT})

    return answered


# The proxy


def proxy_app(engine_address: str) -> FastAPI:
    """Parse, rewrite, forward, keep the JSON: what agent-lightning 1 does with a call."""
    app = FastAPI()
    events: dict[str, list[dict[str, Any]]] = {}
    client = httpx.AsyncClient(timeout=300, limits=httpx.Limits(max_connections=1000))

    @app.post("/proxy/rollout/{rollout}/attempt/{attempt}/mode/{mode}/openai/v1/{path:path}")
    async def forward(
        rollout: str, attempt: str, mode: str, path: str, request: Request
    ) -> JSONResponse:
        asked = json.loads(await request.body())
        body = {**asked, "model": "engine", "temperature": 1.0, "return_token_ids": True}
        body["logprobs"] = mode == "train"
        began = time.perf_counter()
        answer = await client.post(f"{engine_address}/v1/{path}", json=body)
        replied = answer.json()
        events.setdefault(rollout, []).append(
            {
                "event_type": "model_request",
                "attempt_id": attempt,
                "timestamp": time.time(),
                "data": {
                    "request": body,
                    "response": replied,
                    "latency_ms": (time.perf_counter() - began) * 1e3,
                    "http_status": answer.status_code,
                },
            }
        )
        return JSONResponse(content=replied, status_code=answer.status_code)

    return app


def say(line: str) -> None:
    """Write a line for the process that started this one."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def serve_app(app: ASGIApp) -> None:
    """Serve until the process is ended; the first line written is the address."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    say(f"http://127.0.0.1:{listening.getsockname()[1]}")
    os.dup2(2, 1)
    config = uvicorn.Config(
        cast("Any", app), log_level="error", access_log=False, timeout_keep_alive=75
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    match sys.argv[1]:
        case "engine":
            serve_app(engine)
        case "tokenizing-engine":
            serve_app(tokenizing_engine(sys.argv[2]))
        case _:
            serve_app(proxy_app(sys.argv[2]))
