# ruff: noqa: E501 - statements are read best on one line
"""Statements that do harm where they may, by the fence that each is about."""

from collections.abc import Iterator

from longhaul_core.sql_box.limits import Fence

__all__ = ["ALSO", "POSTGRESQL", "SQLITE"]

Hostile = dict[Fence, list[str]]
TABLES = ("runs", "episodes", "steps", "calls", "labels", "metrics", "observations", "messages")
SYSTEM = "/etc/passwd"


def _writes() -> Iterator[str]:
    """What both databases know."""
    for table in TABLES:
        yield f"DELETE FROM {table}"
        yield f"INSERT INTO {table} SELECT * FROM {table}"
        yield f"DROP TABLE {table}"
        yield f"ALTER TABLE {table} ADD COLUMN planted text"
    yield "UPDATE episodes SET episode_return = 100"
    yield "UPDATE runs SET name = 'mine'"
    yield "UPDATE steps SET reward = reward + 1 WHERE step_index = 0"
    yield "DROP VIEW step_detail"
    yield "CREATE TABLE planted (x integer)"
    yield "CREATE TABLE planted AS SELECT * FROM runs"
    yield "CREATE VIEW planted AS SELECT 1"
    yield "CREATE INDEX planted ON steps (reward)"
    yield "CREATE TEMP TABLE planted (x integer)"
    yield "CREATE TEMP VIEW planted AS SELECT 1"
    yield "ALTER TABLE runs RENAME TO planted"
    yield "ALTER TABLE runs DROP COLUMN name"
    yield "DROP INDEX ix_episodes_task_hash"
    yield "BEGIN"
    yield "COMMIT"
    yield "ROLLBACK"
    yield "SAVEPOINT a"
    yield "/* SELECT 1 */ DELETE FROM runs"
    yield "-- SELECT 1\nDELETE FROM runs"
    yield "  \n\t DELETE FROM runs RETURNING *"


SECONDS = [
    # An endless recursion, and joins of everything with everything.
    "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t",
    "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x FROM t) SELECT max(x) FROM t",
    "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT -x FROM t) SELECT x FROM t WHERE x = 2",
    "SELECT count(*) FROM steps a, steps b, steps c, steps d",
    "SELECT count(*) FROM calls a, calls b, calls c WHERE a.reply < b.reply AND b.reply < c.reply",
    "SELECT count(*) FROM step_detail a CROSS JOIN step_detail b CROSS JOIN step_detail c",
    "SELECT count(*) FROM token_logprobs a, token_logprobs b, token_logprobs c",
    "SELECT count(*) FROM prompt_messages a, prompt_messages b, prompt_messages c "
    "WHERE a.content <> b.content AND b.content <> c.content",
    "SELECT (SELECT count(*) FROM steps a, steps b, steps c, steps d)",
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM steps a, steps b, steps c, steps d "
    "WHERE a.reward + b.reward + c.reward + d.reward = 77)",
    "SELECT max(a.reward + b.reward + c.reward + d.reward) FROM steps a, steps b, steps c, steps d",
    "SELECT count(*) FROM steps a JOIN steps b ON 1 = 1 JOIN steps c ON 1 = 1 JOIN steps d ON 1 = 1",
    "SELECT sum(x) FROM (SELECT a.reward * b.reward AS x FROM steps a, steps b, steps c, steps d) t",
    "SELECT 1 FROM steps a, steps b, steps c, steps d "
    "WHERE a.reward + b.reward + c.reward + d.reward = 55 LIMIT 1",
    "SELECT avg(x) FROM (SELECT CASE WHEN a.action LIKE '%' || b.action || '%' THEN 1 ELSE 0 END AS x"
    " FROM steps a, steps b, steps c, steps d) t",
]
TWO = [
    "SELECT 1; SELECT 2",
    "SELECT 1; DELETE FROM runs",
    "SELECT 1;\n\nDROP TABLE runs",
    "SELECT ';'; DELETE FROM runs",
    "SELECT 1; COMMIT; DELETE FROM runs",
    "SELECT 1; -- and\nDELETE FROM metrics",
    "SELECT 1; ROLLBACK; SELECT 2",
    "SELECT 1 /* ; */ ; DELETE FROM labels",
]
MANY_ROWS = [
    "SELECT a.step_index FROM steps a, steps b, steps c",
    "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT x FROM t",
    "SELECT * FROM steps a, steps b",
]

# Each fills something as fast as the machine can, and the deadline ends that: which of the two fences
# comes first is a matter of how busy the machine is.
_LARGE_WINDOW = "SELECT count(*) OVER (ORDER BY a.reward) FROM steps a, steps b, steps c LIMIT 1"
_LONG_COUNT = "SELECT count(*) FROM generate_series(1, 1000000000)"
_LONG_SERIES = "SELECT * FROM generate_series(1, 100000000)"
ALSO: dict[str, Fence] = {
    _LARGE_WINDOW: Fence.MEMORY,
    _LONG_COUNT: Fence.TEMP_FILES,
    _LONG_SERIES: Fence.DEADLINE,
}
"""The other fence that may stop a statement."""

SQLITE: Hostile = {
    Fence.ACTIONS: [
        *_writes(),
        "WITH t AS (SELECT 1) DELETE FROM runs",
        "WITH t AS (SELECT 1) UPDATE runs SET name = 'mine'",
        "REPLACE INTO labels SELECT * FROM labels",
        "INSERT INTO metrics SELECT * FROM metrics WHERE true ON CONFLICT DO UPDATE SET value = 0",
        "EXPLAIN DELETE FROM runs",
        "EXPLAIN QUERY PLAN UPDATE runs SET name = 'mine'",
        "CREATE TRIGGER planted AFTER INSERT ON steps BEGIN SELECT 1; END",
        "CREATE TEMP TRIGGER planted AFTER INSERT ON steps BEGIN DELETE FROM runs; END",
        "CREATE VIRTUAL TABLE planted USING fts5(x)",
        "CREATE VIRTUAL TABLE temp.planted USING fts5(x)",
        "CREATE VIRTUAL TABLE temp.planted USING dbstat(main)",
        "CREATE VIRTUAL TABLE planted USING rtree(id, a, b)",
        "INSERT INTO step_search(step_search) VALUES ('optimize')",
        "DROP TABLE step_search",
        "REINDEX",
        "REINDEX steps",
        "ANALYZE",
        "ANALYZE sqlite_master",
        "ATTACH '/tmp/planted.db' AS planted",
        "ATTACH ':memory:' AS planted",
        "ATTACH 'file:/tmp/planted.db?mode=rwc' AS planted",
        f"ATTACH '{SYSTEM}' AS planted",
        "DETACH main",
        "BEGIN IMMEDIATE",
        "BEGIN EXCLUSIVE",
        "RELEASE a",
        "PRAGMA query_only = 0",
        "PRAGMA writable_schema = 1",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA journal_mode",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA user_version = 9",
        "PRAGMA application_id = 9",
        "PRAGMA temp_store = FILE",
        "PRAGMA temp_store_directory = '/tmp'",
        "PRAGMA trusted_schema = 1",
        "PRAGMA foreign_keys = OFF",
        "PRAGMA table_info(runs)",
        "PRAGMA database_list",
        "PRAGMA integrity_check",
        "PRAGMA mmap_size = 1000000000",
        "PRAGMA cache_size = 1000000",
        "PRAGMA hard_heap_limit = 0",
        "PRAGMA soft_heap_limit = 0",
        "PRAGMA locking_mode = EXCLUSIVE",
        "PRAGMA optimize",
        "PRAGMA incremental_vacuum",
        "PRAGMA schema_version = 1",
        "PRAGMA main.data_version(1)",
        "PRAGMA shrink_memory",
        "PRAGMA busy_timeout = 100000",
        "PRAGMA case_sensitive_like = 1",
    ],
    Fence.RELATIONS: [
        "SELECT * FROM longhaul_schema",
        "SELECT count(version_num) FROM longhaul_schema",
        "SELECT * FROM pragma_database_list",
        "SELECT file FROM pragma_database_list",
        "SELECT * FROM pragma_table_info('runs')",
        "SELECT * FROM pragma_journal_mode",
        "SELECT * FROM pragma_user_version",
        "SELECT * FROM pragma_integrity_check",
        "SELECT * FROM pragma_compile_options",
        "SELECT * FROM pragma_module_list",
        "SELECT * FROM dbstat",
        "SELECT * FROM sqlite_stmt",
        "SELECT r.* FROM runs r, longhaul_schema l",
        "SELECT (SELECT version_num FROM longhaul_schema)",
        "WITH a AS (SELECT * FROM longhaul_schema) SELECT * FROM a",
        "SELECT 1 WHERE '1' IN (SELECT version_num FROM longhaul_schema)",
        "SELECT 1 UNION SELECT version_num FROM longhaul_schema",
        "SELECT * FROM main.longhaul_schema",
        'SELECT * FROM "LONGHAUL_SCHEMA"',
    ],
    Fence.FUNCTIONS: [
        "SELECT load_extension('/tmp/planted.so')",
        "SELECT load_extension('/tmp/planted.so', 'main')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT fts3_tokenizer('simple', x'0000000000000000')",
        "SELECT zeroblob(1000000000)",
        "SELECT length(zeroblob(10))",
        "SELECT randomblob(1000000000)",
        "SELECT hex(randomblob(8))",
        "SELECT sqlite_compileoption_get(0)",
        "SELECT sqlite_compileoption_used('THREADSAFE')",
        "SELECT sqlite_source_id()",
        "SELECT sqlite_log(1, 'planted')",
        "SELECT changes()",
        "SELECT last_insert_rowid()",
        "SELECT fts5_source_id()",
        "SELECT rtreecheck('steps')",
        "SELECT rtreenode(2, x'00')",
        "SELECT rtreedepth(x'0000')",
        "SELECT * FROM runs WHERE load_extension(name) IS NULL",
        "SELECT name FROM runs ORDER BY zeroblob(8)",
        "SELECT name FROM runs GROUP BY randomblob(8)",
        "SELECT CASE WHEN 0 THEN load_extension('x') END",
        "WITH a AS (SELECT zeroblob(8) AS z) SELECT z FROM a",
        "SELECT (SELECT load_extension('x'))",
        "SELECT value FROM json_each(hex(zeroblob(8)))",
    ],
    Fence.VALUE_LENGTH: [
        "SELECT hex(hex(printf('%0*d', 2000000, 0)))",
        "SELECT upper(hex(printf('%0*d', 4000000, 0)))",
        "SELECT replace(printf('%0*d', 3000000, 0), '0', 'ab')",
        "SELECT hex(printf('%0*d', 3000000, 0))",
        "SELECT hex(reply || printf('%0*d', 4000000, 0)) FROM calls",
        "SELECT printf('%0*d', 3000000, 0) || printf('%0*d', 3000000, 0)",
        "SELECT length(replace(printf('%0*d', 4000000, 0), '0', 'three'))",
        "WITH RECURSIVE t(x, n) AS (SELECT 'x', 1 UNION ALL SELECT x || x, n + 1 FROM t WHERE n < 40) "
        "SELECT max(length(x)) FROM t",
        "SELECT length(group_concat(printf('%0*d', 100000, step_index))) FROM steps",
        "SELECT length(json_group_array(printf('%0*d', 100000, step_index))) FROM steps",
        "SELECT name || printf('%0*d', 4000000, 0) || printf('%0*d', 4000000, 0) FROM runs",
    ],
    Fence.DEADLINE: [
        *SECONDS,
        "SELECT count(*) FROM json_each('[1,2,3]') a, steps b, steps c, steps d",
        _LARGE_WINDOW,
        "SELECT count(DISTINCT a.reward + b.reward) FROM steps a, steps b, steps c",
        "SELECT count(*) FROM steps a, steps b, steps c WHERE a.action GLOB '*' || b.action",
    ],
    Fence.KILL: [  # one call of a function is one opcode, which nothing interrupts
        "SELECT name FROM runs ORDER BY instr(printf('%0*d', 4000000, 0), printf('%0*d', 2000000, 1))",
    ],
    Fence.MEMORY: [
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 400) "
        "SELECT printf('%0*d', 1000000, n) AS x FROM t ORDER BY x",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 400) "
        "SELECT count(*) FROM (SELECT DISTINCT printf('%0*d', 1000000, n) FROM t)",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 400), "
        "u AS MATERIALIZED (SELECT n, printf('%0*d', 1000000, n) AS x FROM t) "
        "SELECT count(*) FROM u a JOIN u b ON a.x = b.x",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 400) "
        "SELECT lag(x, 399) OVER (ORDER BY n) FROM (SELECT n, printf('%0*d', 1000000, n) AS x FROM t)",
        "WITH RECURSIVE t(n, x) AS (SELECT 1, '' UNION "
        "SELECT n + 1, printf('%0*d', 1000000, n) FROM t WHERE n < 400) SELECT count(*) FROM t",
    ],
    Fence.ONE_STATEMENT: TWO,
    Fence.SQL_LENGTH: [
        f"SELECT '{'x' * 100_000}'",
        f"SELECT 1 WHERE 1 IN ({', '.join(['1'] * 60_000)})",
    ],
    Fence.ROWS: MANY_ROWS,
    Fence.BYTES: [
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) "
        "SELECT printf('%0*d', 300000, n) FROM t",
        "SELECT printf('%0*d', 3000000, 0)",
        "SELECT printf('%0*d', 300000, a.step_index) FROM steps a, steps b",
    ],
}

_FILE_FUNCTIONS = [
    f"SELECT pg_read_file('{SYSTEM}')",
    f"SELECT pg_read_binary_file('{SYSTEM}')",
    f"SELECT pg_stat_file('{SYSTEM}')",
    "SELECT pg_ls_dir('/')",
    "SELECT pg_ls_waldir()",
    "SELECT pg_ls_logdir()",
    "SELECT pg_ls_tmpdir()",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_export(1, '/tmp/planted')",
    "SELECT lo_create(0)",
    "SELECT lo_creat(-1)",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT lo_put(1, 0, 'x')",
    "SELECT lo_get(1)",
    "SELECT lo_unlink(1)",
    "SELECT lo_open(1, 131072)",
    "SELECT loread(0, 10)",
    "SELECT lowrite(0, 'x')",
]
_SESSION_FUNCTIONS = [
    "SELECT set_config('statement_timeout', '0', false)",
    "SELECT set_config('work_mem', '8GB', false)",
    "SELECT set_config('role', 'postgres', false)",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT set_config('search_path', 'pg_temp', true)",
    "SELECT pg_sleep(100)",
    "SELECT pg_sleep_for('100 s')",
    "SELECT pg_sleep_until(now() + interval '100 s')",
    "SELECT pg_sleep(0.1) FROM steps",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_advisory_lock(281428481)",
    "SELECT pg_advisory_lock_shared(1)",
    "SELECT pg_advisory_xact_lock(1)",
    "SELECT pg_advisory_xact_lock(1, 2)",
    "SELECT pg_try_advisory_lock(1)",
    "SELECT pg_try_advisory_xact_lock_shared(1)",
    "SELECT pg_advisory_unlock_all()",
    "SELECT pg_notify('planted', 'x')",
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
    "SELECT pg_terminate_backend(pid, 100) FROM pg_stat_activity",
    "SELECT pg_logical_emit_message(false, 'x', 'planted')",
    "SELECT pg_export_snapshot()",
    "SELECT pg_reload_conf()",
    "SELECT pg_rotate_logfile()",
    "SELECT pg_switch_wal()",
    "SELECT pg_create_restore_point('x')",
    "SELECT pg_stat_reset()",
    "SELECT pg_promote()",
    "SELECT query_to_xml('SELECT 1', true, true, '')",
    "SELECT query_to_xml('DELETE FROM runs', true, true, '')",
    "SELECT table_to_xml('runs', true, true, '')",
    "SELECT database_to_xml(true, true, '')",
    "SELECT cursor_to_xml('box', 1, true, true, '')",
    "SELECT 1 FROM runs WHERE pg_sleep(100) IS NULL",
    "WITH a AS MATERIALIZED (SELECT pg_sleep(100)) SELECT * FROM a",
    "SELECT * FROM pg_sleep(100)",
    "VALUES (pg_sleep(100))",
]

POSTGRESQL: Hostile = {
    Fence.CURSOR: [
        *_writes(),
        "WITH d AS (DELETE FROM runs RETURNING *) SELECT * FROM d",
        "WITH d AS (UPDATE runs SET name = 'mine' RETURNING *) SELECT * FROM d",
        "WITH d AS (INSERT INTO labels SELECT * FROM labels RETURNING *) SELECT * FROM d",
        "SELECT * INTO planted FROM runs",
        "TRUNCATE runs CASCADE",
        "MERGE INTO runs USING attempts ON true WHEN MATCHED THEN DELETE",
        "COPY runs TO '/tmp/planted'",
        "COPY runs TO PROGRAM 'touch /tmp/planted'",
        "COPY runs FROM PROGRAM 'echo'",
        f"COPY metrics FROM '{SYSTEM}'",
        "COPY runs TO STDOUT",
        "COPY (SELECT 1) TO '/tmp/planted'",
        "DO $$ BEGIN PERFORM pg_sleep(100); END $$",
        "DO $$ BEGIN LOOP END LOOP; END $$",
        "CALL planted()",
        "SET statement_timeout = 0",
        "SET work_mem = '8GB'",
        "SET ROLE postgres",
        "RESET ROLE",
        "RESET ALL",
        "SET SESSION AUTHORIZATION postgres",
        "SET TRANSACTION READ WRITE",
        "SET LOCAL transaction_read_only = off",
        "START TRANSACTION READ WRITE",
        "END",
        "ABORT",
        "RELEASE SAVEPOINT a",
        "PREPARE TRANSACTION 'planted'",
        "PREPARE planted AS SELECT 1",
        "EXECUTE planted",
        "DEALLOCATE ALL",
        "DISCARD ALL",
        "LISTEN planted",
        "UNLISTEN *",
        "NOTIFY planted, 'x'",
        "LOCK TABLE runs IN ACCESS EXCLUSIVE MODE",
        "VACUUM",
        "VACUUM FULL runs",
        "ANALYZE",
        "CLUSTER",
        "REINDEX TABLE runs",
        "CHECKPOINT",
        "LOAD 'planted'",
        "EXPLAIN ANALYZE DELETE FROM runs",
        "EXPLAIN SELECT 1",
        "SHOW ALL",
        "SHOW data_directory",
        "DECLARE other CURSOR WITH HOLD FOR SELECT 1",
        "FETCH ALL FROM box",
        "MOVE 1 FROM box",
        "CLOSE ALL",
        "CREATE FUNCTION planted() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE PROCEDURE planted() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$",
        "CREATE SCHEMA planted",
        "CREATE DATABASE planted",
        "CREATE ROLE planted SUPERUSER",
        "CREATE EXTENSION dblink",
        "CREATE EXTENSION file_fdw",
        "CREATE LANGUAGE plpython3u",
        "CREATE SERVER planted FOREIGN DATA WRAPPER file_fdw",
        "CREATE RULE planted AS ON SELECT TO runs DO INSTEAD SELECT 1",
        "CREATE POLICY planted ON runs",
        "CREATE SEQUENCE planted",
        "CREATE TYPE planted AS (x int)",
        "CREATE DOMAIN planted AS int",
        "CREATE TRIGGER planted AFTER INSERT ON runs EXECUTE FUNCTION planted()",
        "CREATE EVENT TRIGGER planted ON ddl_command_start EXECUTE FUNCTION planted()",
        "CREATE MATERIALIZED VIEW planted AS SELECT 1",
        "CREATE PUBLICATION planted FOR ALL TABLES",
        "CREATE TABLESPACE planted LOCATION '/tmp'",
        "REFRESH MATERIALIZED VIEW planted",
        "GRANT ALL ON runs TO PUBLIC",
        "REVOKE ALL ON runs FROM PUBLIC",
        "ALTER ROLE longhaul_sql SUPERUSER",
        "ALTER ROLE longhaul_sql SET statement_timeout = 0",
        "ALTER ROLE longhaul_sql PASSWORD 'mine'",
        "ALTER SYSTEM SET fsync = on",
        "ALTER DATABASE sql_box SET work_mem = '8GB'",
        "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC",
        "DROP SCHEMA public CASCADE",
        "DROP DATABASE sql_box",
        "DROP OWNED BY longhaul_sql",
        "DROP ROLE longhaul_sql",
        "REASSIGN OWNED BY longhaul_sql TO postgres",
        "COMMENT ON TABLE runs IS 'mine'",
        "SECURITY LABEL ON TABLE runs IS 'mine'",
        "IMPORT FOREIGN SCHEMA public FROM SERVER planted INTO public",
    ],
    Fence.FUNCTIONS: [*_FILE_FUNCTIONS, *_SESSION_FUNCTIONS],
    Fence.READ_ONLY: [
        "SELECT * FROM runs FOR UPDATE",
        "SELECT * FROM runs FOR NO KEY UPDATE",
        "SELECT * FROM runs FOR SHARE",
        "SELECT * FROM runs FOR KEY SHARE",
    ],
    Fence.ROLE: [
        "SELECT * FROM longhaul_schema",
        "SELECT * FROM pg_authid",
        "SELECT rolpassword FROM pg_authid",
        "SELECT * FROM pg_shadow",
        "SELECT * FROM pg_user_mapping",
        "SELECT * FROM pg_subscription",
        "SELECT * FROM pg_statistic",
        "SELECT * FROM pg_largeobject",
        "SELECT * FROM pg_hba_file_rules",
        "SELECT * FROM pg_file_settings",
        "SELECT * FROM pg_config",
        "SELECT * FROM pg_backend_memory_contexts",
        "SELECT (SELECT version_num FROM longhaul_schema)",
        "SELECT 1 UNION SELECT version_num::int FROM longhaul_schema",
        "TABLE longhaul_schema",
    ],
    Fence.DEADLINE: [
        *SECONDS,
        _LONG_COUNT,
        "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b",
        "SELECT repeat('a', 30) || 'b' ~ '^((a|aa)+)+$' FROM generate_series(1, 100000000)",
    ],
    Fence.VALUE_LENGTH: [
        "SELECT repeat('x', 5000000)",
        "SELECT lpad('x', 5000000)",
        "SELECT string_agg(repeat('x', 100000), '') FROM generate_series(1, 100)",
        "SELECT replace(repeat('x', 3000000), 'x', 'ab')",
        "SELECT convert_to(repeat('x', 5000000), 'UTF8')",
        "SELECT json_agg(repeat('x', 100000))::text FROM generate_series(1, 100)",
    ],
    Fence.MEMORY: ["SELECT string_agg(repeat('x', 100000), '') FROM generate_series(1, 3000)"],
    Fence.TEMP_FILES: [_LONG_SERIES],  # in FROM it is written down before its first row is read
    Fence.ONE_STATEMENT: TWO,
    Fence.SQL_LENGTH: SQLITE[Fence.SQL_LENGTH],
    Fence.ROWS: [*MANY_ROWS, "SELECT generate_series(1, 100000000)"],
    Fence.BYTES: [
        "SELECT repeat('x', 300000) FROM generate_series(1, 20000)",
        "SELECT repeat('x', 3000000)",
        "SELECT repeat('x', 300000) FROM steps a, steps b",
    ],
}
