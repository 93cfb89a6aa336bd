"""A program that goes on between its two calls when a file says so. Its reward differs by replies.

Its argument is the folder of a run: after checkpoint N, 0 before the first, it goes on once there
is a file `goes-on-N`.
"""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

CHECKPOINTS = "runs/*/checkpoints/global_step_*"
LONGEST_SECONDS = 300.0


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


def may_go_on(folder: Path) -> bool:
    written = [0, *(int(one.name.split("_")[-1]) for one in folder.glob(CHECKPOINTS))]
    return (folder / f"goes-on-{max(written)}").exists()


def main() -> None:
    task = json.load(sys.stdin)
    first = ask(f"{task['place']}: which way?")
    latest = time.monotonic() + LONGEST_SECONDS
    while not may_go_on(Path(sys.argv[1])) and time.monotonic() < latest:
        time.sleep(0.05)
    second = ask(f"{task['place']}, and then?")
    result = {"reward": len(set(first + second)) % 7 / 10, "success": False}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
