"""A program that takes its time: two calls, and between them it waits while a file is there.

Its reward differs by the replies.
"""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any


def ask(text: str) -> str:
    body: dict[str, Any] = {"model": "auto", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return str(json.load(answer)["choices"][0]["message"])


def main() -> None:
    task = json.load(sys.stdin)
    first = ask(f"{task['place']}: which way?")
    time.sleep(0.5)
    while Path(sys.argv[1]).exists():
        time.sleep(0.05)
    second = ask(f"{task['place']}, and then?")
    result = {"reward": len(set(first + second)) % 7 / 10, "success": False}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
