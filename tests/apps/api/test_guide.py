"""docs/guides/api.md: its Python runs against the program, and its table has every address."""

import json
import os
import re
import subprocess
import urllib.request
from pathlib import Path

from apps.api.conftest import StartApi
from apps.conftest import SampleStore

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "api.md").read_text("utf-8")


def test_the_guides_python_prints_what_the_store_has(
    sample: SampleStore, running_api: StartApi, quick_python: str, tmp_path: Path
) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    running = running_api(sample.url)
    done = subprocess.run(
        [quick_python, "-c", code],
        env=os.environ | {"LONGHAUL_API": running.address},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    first, worst, without_signal, written = done.stdout.splitlines()
    assert re.fullmatch(r"textcraft-softmax: \d+ episodes, finished", first)
    assert re.fullmatch(r"[\d.]+ \w+ \S.*", worst)
    assert int(without_signal) > 0
    assert re.fullmatch(r"\d{3} episodes were written", written)
    lines = [json.loads(line) for line in (tmp_path / "solved.jsonl").read_text().splitlines()]
    assert len(lines) > 10
    assert all(line["metadata"]["success"] for line in lines)

    with urllib.request.urlopen(f"{running.address}/openapi.json") as answer:
        paths = json.load(answer)["paths"]
    told = set(re.findall(r"`(?:GET |POST )?(/[^`?]*)", PAGE))
    below = tuple(each.removesuffix("…") for each in told if each.endswith("/…"))
    group = "/runs/{run_id}/groups/{phase}/{training_step}/{group_index}/"
    missing = {path for path in paths if path not in told and not path.startswith((*below, group))}
    assert missing == set()
