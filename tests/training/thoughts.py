"""Which thoughts a run's chat template has put into its prompts."""

from typing import Any, NamedTuple, cast

from sqlalchemy.orm import Session
from transformers import AutoTokenizer

from longhaul_core.store import read_only_engine
from longhaul_core.store.queries import get_episode
from training.launching import Launched

EMPTY_THOUGHT = "<|im_start|>assistant\n<think>\n\n</think>\n\n"


class Thoughts(NamedTuple):
    """Of the longest episode of the last training step that was trained."""

    num_prompts: int
    num_empty: int
    """Replies in its last prompt, the next one included, that begin after an empty thought."""
    known_to_model: bool
    """Whether the final model's own template has the switch of thoughts."""


def thoughts_of(trained: Launched) -> Thoughts:
    """What the store and the final model of a run say of thoughts."""
    model = trained.run_folder / "model"
    template = (model / "chat_template.jinja").read_text(encoding="utf-8")
    longest = "SELECT id FROM episodes WHERE trained ORDER BY training_step DESC, num_steps DESC"
    engine = read_only_engine(trained.folder / "longhaul.db")
    with Session(engine) as session:
        episode = get_episode(session, episode_id=trained.query(longest)[0][0])
    engine.dispose()
    calls = [call for step in episode.steps for call in step.calls]
    prompts = [call.tokens.prompt_tokens for call in calls if call.tokens is not None]
    tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(model)
    return Thoughts(
        len(prompts),
        str(tokenizer.decode(prompts[-1])).count(EMPTY_THOUGHT),
        "enable_thinking" in template,
    )
