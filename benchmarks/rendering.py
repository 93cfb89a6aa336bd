# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (transformers annotates little of what it returns)
"""What it costs to make a prompt of a program's conversation, and to read a reply.

uv run python benchmarks/rendering.py

A conversation of 4,000 tokens with one tool is rendered from nothing and gone on from; as long a
text is made into tokens as prompts are, and by transformers; a reply of 300 tokens with a thought
and a tool call is read token by token, and the whole text is decoded at each token, as a reader
does that keeps nothing. The tokenizer is SmolLM2's, with tool tags and a Qwen3-like template of
the tests.
"""

import copy
import platform
import sys
import timeit
from collections.abc import Callable
from pathlib import Path

from transformers import AddedToken, AutoTokenizer, PreTrainedTokenizerFast

from longhaul_core.types import Call, Message, SampledTokens, Tool
from longhaul_trainer.models import prepare_model
from longhaul_trainer.rendering.encoding import TextEncoder
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from chat_templates import FAMILIES

HISTORY_TOKENS, REPLY_TOKENS = 4_000, 300
REPEATS = 7
TOOL = Tool(
    name="move",
    description="Go somewhere.",
    parameters='{"type": "object", "properties": {"where": {"type": "string"}}}',
)
WORDS = "You stand in a small room with two doors, north and east; a lamp hangs from the ceiling. "
CALL = '<tool_call>\n{"name": "move", "arguments": {"where": "north"}}\n</tool_call>'
RESULT = Message(role="tool", content="The door is locked. " + WORDS, tool_call_id="call_1")


def main() -> None:
    """Print the best of several runs of each."""
    tokenizer = a_tokenizer()
    renderer = ChatTemplateRenderer(tokenizer)
    history = a_history(renderer)
    prompt = renderer.render_chat(history, tools=(TOOL,))
    thought = (WORDS * 20)[: 4 * REPLY_TOKENS]
    tokens = tokenizer.encode(f"<think>\n{thought}\n</think>\n\nI go.\n{CALL}<|im_end|>")
    reply = tuple(tokens[: REPLY_TOKENS // 2] + tokens[-REPLY_TOKENS // 2 :])
    call = Call(
        messages=history,
        reply="",
        sampled=SampledTokens(
            prompt_tokens=prompt,
            action_tokens=reply,
            behavior_logprobs=(0.0,) * len(reply),
            policy_version=0,
        ),
    )
    longer = renderer.added(call, (RESULT,), tools=(TOOL,))
    assert longer is not None, "the benchmark's conversation must go on"

    anew = seconds(lambda: renderer.render_chat((*history, RESULT), tools=(TOOL,)))
    extended = seconds(lambda: renderer.added(call, (RESULT,), tools=(TOOL,)))
    print(f"prompt of {len(prompt):,} tokens, then a reply of {len(reply)} and a tool's result")
    print(f"  rendered from nothing {anew * 1e3:8.2f} ms")
    print(f"  gone on from          {extended * 1e3:8.2f} ms   {extended / anew:.3f} of that")

    encode = TextEncoder(tokenizer)
    assert encode.uses_fastokens, "the benchmark compares two programs"
    text = WORDS * (HISTORY_TOKENS // 20)
    assert encode(text) == tokenizer.encode(text, add_special_tokens=False)
    fast = seconds(lambda: encode(text)) / len(encode(text))
    slow = seconds(lambda: tokenizer.encode(text, add_special_tokens=False)) / len(encode(text))
    print(f"a text of {len(encode(text)):,} tokens")
    print(f"  as prompts are made     {fast * 1e6:7.2f} us a token")
    print(f"  by transformers         {slow * 1e6:7.2f} us, {slow / fast:.1f} times that")

    def read() -> None:
        reading = renderer.reader(tools=(TOOL,))
        for token in reply:
            reading.feed((token,))
        reading.end()

    def decode_each_time() -> None:
        for place in range(len(reply)):
            tokenizer.decode(list(reply[:place]))

    reading, decoding = seconds(read) / len(reply), seconds(decode_each_time) / len(reply)
    print(f"reply of {len(reply)} tokens, read token by token")
    print(f"  read                   {reading * 1e6:7.2f} us a token")
    print(f"  decoded anew each time {decoding * 1e6:7.2f} us, {decoding / reading:.1f} times that")
    print(
        f"  best of {REPEATS}, one thread, {platform.machine()}, Python {platform.python_version()}"
    )


def a_tokenizer() -> PreTrainedTokenizerFast:
    """SmolLM2's, with the tags and the template of a Qwen3-like one."""
    tokenizer = copy.deepcopy(AutoTokenizer.from_pretrained(prepare_model("smollm2")))
    like = FAMILIES["qwen3"]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in like.added])
    tokenizer.chat_template = like.template
    return tokenizer


def a_history(renderer: ChatTemplateRenderer) -> tuple[Message, ...]:
    """A conversation of `HISTORY_TOKENS`, or somewhat more."""
    history = [Message(role="system", content="Be brief."), Message(role="user", content="Go.")]
    while len(renderer.render_chat(history, tools=(TOOL,))) < HISTORY_TOKENS:
        history += [
            Message(role="assistant", content="I look around and go north."),
            Message(role="user", content=WORDS * 4),
        ]
    return tuple(history)


def seconds(work: Callable[[], object]) -> float:
    """The best of `REPEATS` runs."""
    times = timeit.Timer(work)
    number, _ = times.autorange()
    return min(times.repeat(REPEATS, max(1, number // 4))) / max(1, number // 4)


if __name__ == "__main__":
    main()
