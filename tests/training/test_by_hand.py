"""`trainer gateway` on weights of ours: an agent is tried by hand."""

import os
import signal
from pathlib import Path

import openai
import pytest
from sqlalchemy.orm import Session

from longhaul_core.store.queries import list_runs
from longhaul_core.store.session import read_only_engine
from standing import Standing, ask, post
from training.launching import FORKED_TRAINER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RUN = """
num_training_steps = 1
tasks_per_training_step = 1

[environment]
id = "longhaul/NumberLine-v0"

[rollout]
max_reply_tokens = 6
max_prompt_tokens = 300

[engine]
memory_gib = 0.25

[resources]
device = "cpu"
"""


def test_an_agent_is_tried_by_hand_on_weights_of_ours(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN, encoding="utf-8")
    python = os.environ[FORKED_TRAINER]
    given = ("--checkpoint", "tiny", "--config", "run.toml")
    standing = Standing(*given, python=python, folder=tmp_path)
    try:
        environ = standing.environ()
        with openai.OpenAI(
            base_url=environ["OPENAI_BASE_URL"], api_key=environ["OPENAI_API_KEY"], max_retries=0
        ) as client:
            named = [model.id for model in client.models.list()]
            replies = [
                client.chat.completions.create(
                    model=name,
                    messages=[{"role": "user", "content": "Which way?"}],
                    temperature=0.0,
                    stream=True,
                )
                for name in ("auto", "tiny")
            ]
            read = [
                "".join(part.choices[0].delta.content or "" for part in reply if part.choices)
                for reply in replies
            ]
        body = {"reward": 1.0, "done": True}
        post(f"{environ['LONGHAUL_URL']}/step", key=environ["LONGHAUL_KEY"], body=body)
        ended = standing.lines_until("episode 0:")[-1]
        ask(standing.environ())  # the second episode is open when the gateway is ended
        rest = standing.ended_by(signal.SIGTERM)
    finally:
        standing.process.kill()
        standing.process.wait()

    assert standing.process.returncode == 0, rest
    assert named == ["auto", "tiny"]
    assert read[0] == read[1] != ""
    assert "2 steps, return 1" in ended
    with Session(read_only_engine(tmp_path / "by_hand.db")) as session:
        (run,) = list_runs(session)
    assert (run.kind, run.name, run.status) == ("evaluate", "gateway", "finished")
    assert (run.num_episodes, run.num_failed_episodes) == (1, 1)
    with read_only_engine(tmp_path / "by_hand.db").connect() as connection:
        calls = connection.exec_driver_sql(
            "SELECT reply, num_action_tokens FROM call_detail ORDER BY episode_id, step_index"
        ).all()
        (num_pieces,) = connection.exec_driver_sql("SELECT count(*) FROM token_pieces").one()
    assert [reply for reply, _ in calls][:2] == read
    assert len(calls) == 3
    assert all(num_tokens == 6 for _, num_tokens in calls)
    assert num_pieces > 0
