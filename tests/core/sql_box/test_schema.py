"""The box on a store whose schema another version of the program wrote."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from core.sql_box.conftest import Box
from longhaul_core.errors import QueryError, StoreError
from longhaul_core.sql_box.box import run_query
from longhaul_core.store.addresses import store_url
from longhaul_core.store.models import SCHEMA_VERSION

ASKED = "SELECT count(*) FROM token_logprobs"


@pytest.mark.parametrize(("version", "of"), [("1", "a development"), ("999", "a newer")])
def test_a_file_of_another_schema_is_refused(
    version: str, of: str, sqlite_box: Box, tmp_path: Path
) -> None:
    path = Path(shutil.copy(sqlite_box.url, tmp_path / "store.db"))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE longhaul_schema SET version_num = ?", (version,))
    expected = f"{of} version of Longhaul \\(schema {version}; this program reads {SCHEMA_VERSION}"
    with pytest.raises(StoreError, match=expected):
        run_query(path, ASKED)


def test_a_view_that_an_older_database_lacks_is_told_from_a_mistake(postgresql_box: Box) -> None:
    engine = create_engine(store_url(postgresql_box.owner), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("ALTER VIEW token_logprobs RENAME TO not_yet"))
        try:
            with pytest.raises(QueryError, match="written by another version") as caught:
                run_query(postgresql_box.url, ASKED)
        finally:
            connection.execute(text("ALTER VIEW not_yet RENAME TO token_logprobs"))
    engine.dispose()
    assert "did you mean" not in str(caught.value)
    with pytest.raises(QueryError) as mistaken:
        run_query(postgresql_box.url, "SELECT count(*) FROM token_logprob")
    assert "did you mean token_logprobs" in str(mistaken.value)
    assert "another version" not in str(mistaken.value)
