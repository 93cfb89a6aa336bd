"""A program of two calls, which waits between them until a test lets it go on.

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


def held(folder: Path) -> bool:
    """Whether no file lets it go on: `start`, and one of each checkpoint's name."""
    reached = ["start", *(kept.name for kept in folder.glob("runs/*/checkpoints/global_step_*"))]
    return not all((folder / name).exists() for name in reached)


def main() -> None:
    task = json.load(sys.stdin)
    first = ask(f"{task['place']}: which way?")
    while held(Path(sys.argv[1])):
        time.sleep(0.05)  # the test is another process
    second = ask(f"{task['place']}, and then?")
    result = {"reward": len(set(first + second)) % 7 / 10, "success": False}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
