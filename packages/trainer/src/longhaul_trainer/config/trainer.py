"""How playing and learning take turns."""

from collections.abc import Generator
from typing import Literal

from pydantic import Field

from longhaul_trainer.config.section import Section


class TrainerConfig(Section):
    """How playing and learning take turns."""

    mode: Literal["sync", "colocate_async", "separate_async"] = "sync"
    """`sync` plays each training step's episodes with the weights that they then change; the
    others play ahead while the learner learns from what is finished: on the learner's own
    machines (`colocate_async`, where playing pauses for each update) or on others
    (`separate_async`)."""
    batches_ahead: int = Field(default=0, ge=0)
    """Training steps' worth of groups that are played ahead; 0 in `sync`."""
    max_staleness: int = Field(default=0, ge=0)
    """Training steps by which the weights that sampled may be behind those that learn; in `sync`
    as long as surplus groups of `sampling` may wait for an update."""
    on_stale: Literal["drop", "wait"] = "drop"
    """`drop` throws a group away that came too late for `max_staleness`, and plays another task;
    `wait` lets the learner wait for it in time, so that nothing is thrown away."""

    def conflicts(self) -> Generator[str]:
        """Nothing is stale that is not played ahead, and what is needs time to be learned from."""
        if self.mode == "sync":
            if self.batches_ahead > 0:
                yield (
                    f'trainer.batches_ahead = {self.batches_ahead} with trainer.mode = "sync", '
                    "which plays each batch when it is learned from; leave it out, or choose "
                    "another mode"
                )
            return
        if self.batches_ahead == 0:
            yield (
                f'trainer.mode = "{self.mode}" with trainer.batches_ahead = 0 has no batch in '
                'flight; set it to at least 1, or trainer.mode = "sync"'
            )
        if self.max_staleness < self.batches_ahead:
            yield (
                f"trainer.max_staleness = {self.max_staleness} is less than "
                "trainer.batches_ahead = "
                f"{self.batches_ahead}; a batch that is played that far ahead is learned from that "
                "many training steps later, so it would always be stale"
            )
