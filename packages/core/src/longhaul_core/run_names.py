"""Which run a person means."""

from collections.abc import Sequence

from longhaul_core.errors import ConfigError

__all__ = ["pick_run"]


def pick_run(reference: str, run_ids: Sequence[str], *, place: str) -> str:
    """The run that a person names: its id, the beginning of just one, or `last`.

    Args:
        reference: What was typed.
        run_ids: Of all there are, oldest first.
        place: Where they are, for messages.

    Raises:
        ConfigError: If there is no such run, or more than one; it lists what there is.
    """
    matches = [run_id for run_id in run_ids if run_id.startswith(reference)]
    if reference in run_ids:
        matches = [reference]
    elif reference == "last":
        matches = list(run_ids[-1:])
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ConfigError(f"{reference!r} begins {len(matches)} runs: {_list(matches)}; name one")
    there = f"it holds {_list(run_ids)}" if run_ids else "it holds no run"
    raise ConfigError(f"no run {reference!r} in {place}; {there}")


def _list(run_ids: Sequence[str]) -> str:
    newest = list(reversed(run_ids))
    return ", ".join(newest[:5]) + (f" and {len(newest) - 5} more" if len(newest) > 5 else "")
