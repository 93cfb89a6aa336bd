# pyright: reportUnknownMemberType=false
# (transformers annotates little of what it returns)
"""Pictures as a model reads them: how many tokens each takes in a prompt, and its pixels.

A chat template writes one placeholder for a picture. The model reads as many as the picture has
patches, four of which make one token, after it was brought to a size that patches fill. Those
tokens are counted here from the picture's size alone; the engine and the learner make the patches
themselves, each by the processor of the model's folder.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image
from transformers import AutoProcessor

from longhaul_core.types import Message, Picture
from longhaul_trainer.models.vision import PROCESSORS, reads_pictures

KEPT_PICTURES = 64
"""Decoded pictures that a process keeps, those used last; 500 by 500 pixels take 0.75 MB."""


class PictureReader:
    """The processor of a model that reads pictures."""

    def __init__(self, processor: Any) -> None:  # noqa: ANN401  one class for each family
        """Of transformers' processor of the model."""
        self._images: Any = processor.image_processor
        self._token: int = processor.image_token_id

    def num_tokens(self, picture: Picture) -> int:
        """Tokens that a picture takes in a prompt, the two marks around them not counted.

        Raises:
            ValueError: Its bytes are not at hand, or are no image that can be read, or one side is
                more than 200 times as long as the other.
        """
        width, height = self.image(picture).size
        return self._images.get_number_of_image_patches(height, width, {}) // (
            self._images.merge_size**2
        )

    def image(self, picture: Picture) -> Image.Image:
        """A picture's pixels, red, green and blue; the same object while it is kept.

        Raises:
            ValueError: Its bytes are not at hand, or are no image that can be read.
        """
        return _decoded(picture)

    def images(self, messages: Sequence[Message]) -> list[Image.Image]:
        """The pictures of a prompt, in order."""
        return [self.image(picture) for picture in pictures_of(messages)]

    def expanded(self, tokens: Sequence[int], pictures: Sequence[Picture]) -> tuple[int, ...]:
        """Tokens with as many placeholders for each picture as it takes.

        Args:
            tokens: With one placeholder for each picture.
            pictures: In their order.

        Raises:
            ValueError: There are not as many placeholders as pictures: a text holds the
                placeholder's name, or the template wrote none for a picture.
        """
        if (num_places := list(tokens).count(self._token)) != len(pictures):
            raise ValueError(
                f"the prompt has {len(pictures)} pictures and {num_places} placeholders for them; "
                "a text may not hold the placeholder's name, and the chat template must write one "
                "for each picture"
            )
        rest = iter(pictures)
        return tuple(
            token
            for read in tokens
            for token in ([read] * self.num_tokens(next(rest)) if read == self._token else (read,))
        )

    def require_places(self, tokens: Sequence[int], messages: Sequence[Message]) -> None:
        """Refuse a prompt whose placeholders are not those of its pictures.

        Raises:
            ValueError: The engine, or the learner, would read a picture where none stands.
        """
        found = tokens.count(self._token)
        expected = sum(self.num_tokens(picture) for picture in pictures_of(messages))
        if found != expected:
            raise ValueError(
                f"the prompt has {found} tokens of pictures, and its pictures take {expected}"
            )


def pictures_of(messages: Sequence[Message]) -> tuple[Picture, ...]:
    """The pictures of messages, in order."""
    return tuple(picture for message in messages for picture in message.pictures)


def picture_reader(processor: object) -> PictureReader | None:
    """Of transformers' processor of a model; None where the model reads no pictures."""
    return PictureReader(processor) if type(processor).__name__ in PROCESSORS else None


def load_picture_reader(folder: Path) -> PictureReader | None:
    """Of a model's Hugging Face folder; None where the model reads no pictures."""
    if not reads_pictures(folder):
        return None
    of_transformers: Any = AutoProcessor
    return picture_reader(of_transformers.from_pretrained(folder))


@lru_cache(maxsize=KEPT_PICTURES)
def _decoded(picture: Picture) -> Image.Image:
    if picture.data is None:
        raise ValueError(f"picture {picture.content_hash} has no bytes to be read")
    try:
        return Image.open(io.BytesIO(picture.data)).convert("RGB")
    except OSError as error:
        raise ValueError(f"picture {picture.content_hash} cannot be read: {error}") from error
