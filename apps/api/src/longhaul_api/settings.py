"""How the API is served, checked before a socket is opened."""

from dataclasses import dataclass
from typing import ClassVar

from longhaul_core.errors import ConfigError
from longhaul_core.serving import ServerSettings

__all__ = ["ApiSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings(ServerSettings):
    """Address, token and names of one server."""

    token_advice: ClassVar[str] = "give one (--token, or LONGHAUL_API_TOKEN)"

    port: int = 8000
    sql_store: str | None = None
    """Address that typed SQL goes to (`sql_box.stores`); None: `/sql` answers 503 and says why."""

    def __post_init__(self) -> None:
        if problems := self.address_problems():
            raise ConfigError("; ".join(problems))
