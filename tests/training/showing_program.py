"""A program that shows pictures: two turns of a conversation, and its end again.

The second time an earlier picture is another one of the same size, so that the tokens of the
prompt are the same, and the pictures are not.
"""

import json
import os
import sys
import urllib.request
from typing import Any

Message = dict[str, Any]


def ask(messages: list[Message]) -> Message:
    body = {"model": "auto", "messages": messages}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        reply = json.load(answer)["choices"][0]["message"]
    return {"role": "assistant", "content": str(reply.get("content") or "")}


def shown(text: str, picture: str) -> Message:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}
    return {"role": "user", "content": [{"type": "text", "text": text}, image]}


def worth(reply: Message) -> float:
    return len(set(reply["content"])) % 7 / 10


def main() -> None:
    task = json.load(sys.stdin)
    first, second, exchanged = task["pictures"]
    question = f"Where is the {task['box']} box?"
    asked = shown(question, first)
    reply = ask([asked])
    later = [reply, shown("And now?", second)]
    replies = [
        reply,
        ask([asked, *later]),
        ask([shown(question, exchanged), *later]),
    ]
    result = {"step_rewards": [worth(reply) for reply in replies], "success": False}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
