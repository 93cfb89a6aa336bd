"""One real store on disk for all tests of the API and the viewer; they only read it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from sqlalchemy.orm import Session

from apps.sample_store import write_sample_store
from longhaul_core.store import queries
from longhaul_core.store.queries import EpisodeDetail, EpisodeFilter
from longhaul_core.store.session import read_only_engine


@dataclass(frozen=True, kw_only=True)
class SampleStore:
    """Where the store is, and what is worth looking at in it."""

    url: str
    run_id: str
    solved: EpisodeDetail
    """A trained episode that solved its task."""
    hostile: EpisodeDetail
    """One whose replies hold markup and three scripts."""
    failed: EpisodeDetail


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> SampleStore:
    url = str(tmp_path_factory.mktemp("store") / "sample.db")
    # In a thread of its own: a browser's driver may hold this one's event loop.
    with ThreadPoolExecutor(1) as player:
        run_id = player.submit(write_sample_store, url).result().run_id
    engine = read_only_engine(url)
    with Session(engine) as session:

        def first(where: EpisodeFilter, text: str = "") -> EpisodeDetail:
            rows = queries.list_episodes(session, where=where, limit=1000).rows
            details = (queries.get_episode(session, episode_id=row.episode_id) for row in rows)
            return next(
                detail
                for detail in details
                if any(text in call.reply for step in detail.steps for call in step.calls)
            )

        sample = SampleStore(
            url=url,
            run_id=run_id,
            solved=first(EpisodeFilter(run_id=run_id, phase="train", success=True)),
            hostile=first(EpisodeFilter(run_id=run_id, phase="train"), "<script>"),
            failed=first(EpisodeFilter(run_id=run_id, failed=True)),
        )
    engine.dispose()
    return sample
