"""What one statement may take, and the fences that hold it. Imported by the child process too."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["HARMFUL_FUNCTIONS", "KILL_SECONDS", "START_SECONDS", "Fence", "QueryLimits"]

MIB = 2**20
KILL_SECONDS = 5.0
"""After the deadline the caller kills the process; what the fences within it have to end it."""
START_SECONDS = 60.0
"""What the process has before, to start and to connect on a busy machine."""

HARMFUL_FUNCTIONS = (
    "^(set_config|pg_sleep.*|pg_(try_)?advisory.*|pg_notify|pg_(cancel|terminate)_backend"
    "|pg_logical_emit_message|pg_export_snapshot|lo_.*|loread|lowrite|dblink.*|.*_to_xml.*)$"
)
"""Of PostgreSQL, by name: they raise the role's limits, wait, take locks, wake or end other
sessions, write to the log, make large objects, or carry out text."""


class Fence(StrEnum):
    """What keeps a statement from doing harm; an error names the one that stopped it."""

    # On both databases.
    SQL_LENGTH = "sql_length"
    """Longer statements are not read."""
    ONE_STATEMENT = "one_statement"
    """SQLite's `execute` and PostgreSQL's extended protocol take one statement."""
    DEADLINE = "deadline"
    """SQLite's progress handler; on PostgreSQL the watchdog, which cancels."""
    KILL = "kill"
    """The process is killed `KILL_SECONDS` after the deadline, from the statement's start on."""
    ALARM = "alarm"
    """The process ends by itself a second later, though who started it is dead."""
    CPU = "cpu"
    """RLIMIT_CPU of the process."""
    MEMORY = "memory"
    """RLIMIT_AS of the process, and SQLite's limit on its heap."""
    FILES = "files"
    """RLIMIT_FSIZE: the process can make no file larger; SQLite sorts in memory."""
    ROWS = "rows"
    BYTES = "bytes"
    READ_ONLY = "read_only"
    """SQLite's `mode=ro`; a READ ONLY transaction of PostgreSQL."""
    FUNCTIONS = "functions"
    """SQLite: a list of what may be called. PostgreSQL: EXECUTE revoked of what does harm."""

    # On SQLite.
    ACTIONS = "actions"
    """The authorizer allows SELECT, READ and recursion."""
    RELATIONS = "relations"
    """Only tables and views of the store, and JSON's table-valued functions."""
    ATTACH = "attach"
    """No place for a second database."""
    VALUE_LENGTH = "value_length"
    """Longest text or blob."""

    # On PostgreSQL.
    CURSOR = "cursor"
    """DECLARE … CURSOR FOR takes a SELECT by grammar."""
    ROLE = "role"
    """The role may read the store's tables and views, and nothing else."""
    STATEMENT_TIMEOUT = "statement_timeout"
    """The server's own deadline, if this process is stopped."""
    TEMP_FILES = "temp_files"
    """The role's `temp_file_limit`."""
    CONNECTIONS = "connections"
    """The role's CONNECTION LIMIT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """What one statement may take.

    Raises:
        ValueError: A limit is not above 0.
    """

    seconds: float = 10.0
    """Wall clock, from the moment that the statement is given to the database."""
    rows: int = 10_000
    """Of the answer; the rest is left out, and `QueryResult.truncated` says so."""
    num_bytes: int = 32 * MIB
    """Of the answer as JSON; likewise."""
    value_bytes: int = 4 * MIB
    """Longest text or blob that SQLite may read or make. On PostgreSQL a longer one is refused when
    it arrives."""
    memory_bytes: int = 768 * MIB
    """Of the child process; SQLite's data is in it, PostgreSQL's is in the server."""
    sql_characters: int = 100_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)!r}")
