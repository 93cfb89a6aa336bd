"""ScienceWorld's expert: the authors' gold path, followed from the start."""

__all__ = ["Expert"]


class Expert:
    """Where an episode is on the gold path."""

    def __init__(self) -> None:
        self.path: list[str] | None = None
        """None until someone asks; making it takes seconds."""
        self._taken: list[str] = []

    def took(self, action: str) -> None:
        """An action was taken."""
        self._taken.append(action)

    def next_action(self) -> str | None:
        """The path's next action; None if the episode has left it, or it has ended."""
        done = len(self._taken)
        if self.path is None or self._taken != self.path[:done] or done == len(self.path):
            return None
        return self.path[done]
