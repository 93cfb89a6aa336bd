"""Episodes of other programs come into a store, and a store's go out, in the formats of others.

    read_values ──► a format's reader ──► ImportedEpisode ──► EpisodeNumbers ──► StoreWriter
    queries.get_episode ──► StoredEpisode ──► a format's writer ──► lines

One module a format; `docs/guides/formats.md` says where each field goes, and what is lost.
"""

from longhaul_core.exchange.exporting import export_episodes
from longhaul_core.exchange.formats import FORMATS, FormatName, format_named
from longhaul_core.exchange.importing import ImportSettings, import_files
from longhaul_core.exchange.where import EpisodeWhere, parse_where

__all__ = [
    "FORMATS",
    "EpisodeWhere",
    "FormatName",
    "ImportSettings",
    "export_episodes",
    "format_named",
    "import_files",
    "parse_where",
]
