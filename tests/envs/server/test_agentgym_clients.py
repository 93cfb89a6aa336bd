"""The server as AgentGym's, asked again for all that AgentGym's own clients asked it.

`make_agentgym_requests.py` beside the recorded requests has how these were made.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from listed_environments import why_missing
from local_workers import LocalBackend, in_event_loop
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_envs.server.dialects.agentgym import create_agentgym_app
from longhaul_envs.server.metrics import Metrics
from longhaul_envs.server.served import EnvironmentToServe
from longhaul_envs.server.table import SessionTable, TableLimits
from web_sites import running_site
from webarena_tasks import webarena_options

RECORDED = Path(__file__).parents[2] / "golden" / "agentgym_requests.json.gz"
PLAYS: list[dict[str, Any]] = json.loads(gzip.decompress(RECORDED.read_bytes()))["plays"]
WEBARENA = "longhaul/WebArena-v0"
IN_PROCESS = [play for play in PLAYS if play["environment"] != WEBARENA]


def test_every_form_is_asked_for_by_a_client_of_its_own() -> None:
    assert sorted({play["client"] for play in PLAYS}) == [
        "AlfWorldEnvClient",
        "BabyAIEnvClient",
        "MazeEnvClient",
        "SciworldEnvClient",
        "SearchQAEnvClient",
        "SqlGymEnvClient",
        "TextCraftEnvClient",
        "WebarenaEnvClient",
        "WebshopEnvClient",
        "WordleEnvClient",
    ]


@pytest.mark.parametrize("play", IN_PROCESS, ids=lambda play: play["environment"])
def test_what_agentgym_s_own_client_asked_is_answered_as_it_was(play: dict[str, Any]) -> None:
    if why := why_missing(play["environment"]):
        pytest.skip(why)
    answered_as_recorded(play)


@pytest.mark.slow
@pytest.mark.usefixtures("installed_chromium")
def test_what_agentgym_s_webarena_client_asked_is_answered_as_it_was(tmp_path: Path) -> None:
    (play,) = (play for play in PLAYS if play["environment"] == WEBARENA)
    with running_site() as site:
        here = json.loads(json.dumps(play).replace("http://site.test", site.address))
        answered_as_recorded(here | {"options": webarena_options(tmp_path, site.address)})


@in_event_loop
async def answered_as_recorded(play: dict[str, Any]) -> None:
    """Ask a server of the play's environment what the client asked, and compare its answers."""
    served = EnvironmentToServe(id=play["environment"], options=play["options"]).built(
        backend=lambda spec: LocalBackend(GymEnvironmentSpec.from_json(spec))
    )
    table = SessionTable([served], limits=TableLimits(), observer=Metrics())
    served.fleet.start()
    try:
        await served.fleet.started()
        transport = httpx.ASGITransport(create_agentgym_app(table, served))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for asked in play["asked"]:
                answer = await client.request(asked["method"], asked["path"], json=asked["body"])
                assert answer.status_code == asked["status"]
                assert answer.json() == asked["answer"], asked
    finally:
        await served.fleet.close()
