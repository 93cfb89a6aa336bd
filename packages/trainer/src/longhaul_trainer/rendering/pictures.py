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
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

from PIL import Image, UnidentifiedImageError
from transformers import AutoProcessor

from longhaul_core.types import Message, Picture, pictures_of
from longhaul_trainer.models.vision import PROCESSORS, reads_pictures

MOST_PIXELS = 2**24
"""Of a picture, 4,096 by 4,096: decoded it takes 48 MiB."""
KEPT_PIXELS = 2**25
"""Of the decoded pictures that a process keeps, those used last: 96 MiB."""
GREY = (128, 128, 128)
"""What a policy is shown that is to see nothing."""
_FORMATS = ("PNG", "JPEG", "WEBP")
_DAMAGED = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What Pillow raises at bytes that are no whole picture."""


class PictureReader:
    """The processor of a model that reads pictures."""

    def __init__(self, processor: Any, *, grey: bool = False) -> None:  # noqa: ANN401  one a family
        """Know what a processor does with a picture.

        Args:
            processor: transformers', of the model.
            grey: Show each picture as one of its size that is grey all over.
        """
        self._grey = grey
        self._images: Any = processor.image_processor
        self._token: int = processor.image_token_id
        self._video_token: int = processor.video_token_id

    def num_tokens(self, picture: Picture) -> int:
        """Tokens that a picture takes in a prompt, the two marks around them not counted.

        Its size is read, and no more: whether the rest of it can be read, `image` finds out.

        Raises:
            ValueError: Its bytes are not at hand, or do not begin as an image; it has more than
                `MOST_PIXELS`; or one side is more than 200 times as long as the other.
        """
        with _opened(picture) as image:
            width, height = image.size
        return self._images.get_number_of_image_patches(height, width, {}) // (
            self._images.merge_size**2
        )

    def image(self, picture: Picture) -> Image.Image:
        """A picture's pixels, red, green and blue; the same object while it is kept.

        Raises:
            ValueError: Its bytes are not at hand, or are no image that can be read, or it has more
                than `MOST_PIXELS`.
        """
        image = _decoded.image(picture)
        return Image.new("RGB", image.size, GREY) if self._grey else image

    def images(self, messages: Sequence[Message]) -> list[Image.Image]:
        """The pictures of a prompt, in order."""
        return [self.image(picture) for picture in pictures_of(messages)]

    def expanded(self, tokens: Sequence[int], pictures: Sequence[Picture]) -> tuple[int, ...]:
        """Tokens with as many placeholders for each picture as it takes.

        Args:
            tokens: With one placeholder for each picture.
            pictures: In their order. Each is decoded, so that one which cannot be is refused here.

        Raises:
            ValueError: There are not as many placeholders as pictures, since the template wrote
                none for a picture. Or a picture cannot be read.
        """
        self._require_no_video(tokens)
        if (num_places := list(tokens).count(self._token)) != len(pictures):
            raise ValueError(
                f"the prompt has {len(pictures)} pictures and {num_places} placeholders for them; "
                "the chat template must write one for each picture"
            )
        for picture in pictures:
            self.image(picture)
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
        self._require_no_video(tokens)
        found = tokens.count(self._token)
        expected = sum(self.num_tokens(picture) for picture in pictures_of(messages))
        if found != expected:
            raise ValueError(
                f"the prompt has {found} tokens of pictures, and its pictures take {expected}"
            )

    def whole_at_the_end(
        self, tokens: Sequence[int], pictures: Sequence[Picture]
    ) -> tuple[tuple[int, ...], tuple[Picture, ...]]:
        """The end of a prompt without the rest of a picture that it was cut in, and its pictures.

        Args:
            tokens: A prompt, or its end.
            pictures: Those of the whole prompt, in order.

        Returns:
            Tokens, of which the placeholders are those of whole pictures, and these.
        """
        cut_in = next((n for n, token in enumerate(tokens) if token != self._token), len(tokens))
        rest = tuple(tokens[cut_in:])
        starts = sum(before != token == self._token for before, token in pairwise((None, *rest)))
        return rest, tuple(pictures[len(pictures) - starts :])

    def _require_no_video(self, tokens: Sequence[int]) -> None:
        if self._video_token in tokens:
            raise ValueError(
                f"the prompt has token {self._video_token}, which stands for a video, and nobody "
                "shows any here; a text may not hold its name"
            )


def picture_reader(processor: object, *, grey: bool = False) -> PictureReader | None:
    """Of transformers' processor of a model; None where the model reads no pictures."""
    if type(processor).__name__ not in PROCESSORS:
        return None
    return PictureReader(processor, grey=grey)


def load_picture_reader(folder: Path) -> PictureReader | None:
    """Of a model's Hugging Face folder; None where the model reads no pictures."""
    if not reads_pictures(folder):
        return None
    of_transformers: Any = AutoProcessor
    return picture_reader(of_transformers.from_pretrained(folder))


class DecodedPictures:
    """Decoded pictures by their hashes, those used last, of at most so many pixels in all.

    The newest one is kept whatever its size. Threads may share it; two that ask for the same
    picture at once may both decode it.
    """

    def __init__(self, most_pixels: int) -> None:
        self._most_pixels = most_pixels
        self._num_pixels = 0
        self._kept: OrderedDict[str, Image.Image] = OrderedDict()
        self._lock = Lock()

    def image(self, picture: Picture) -> Image.Image:
        """See `PictureReader.image`."""
        name = picture.content_hash
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        decoded = _pixels(picture)
        with self._lock:
            if name not in self._kept:
                self._kept[name] = decoded
                self._num_pixels += _num_pixels(decoded)
            while self._num_pixels > self._most_pixels and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                self._num_pixels -= _num_pixels(oldest)
        return decoded


_decoded = DecodedPictures(KEPT_PIXELS)


def _opened(picture: Picture) -> Image.Image:
    """A picture of which no more than the size is read yet."""
    if picture.data is None:
        raise ValueError(f"picture {picture.content_hash} has no bytes to be read")
    try:
        image = Image.open(io.BytesIO(picture.data), formats=_FORMATS)
    except _DAMAGED as error:
        raise _unreadable(picture, error) from error
    if _num_pixels(image) > MOST_PIXELS:
        raise ValueError(
            f"picture {picture.content_hash} has {image.width:,} by {image.height:,} pixels, more "
            f"than the {MOST_PIXELS:,} that one may have; make it smaller"
        )
    return image


def _pixels(picture: Picture) -> Image.Image:
    with _opened(picture) as image:
        try:
            return image.convert("RGB")
        except _DAMAGED as error:
            raise _unreadable(picture, error) from error


def _unreadable(picture: Picture, error: Exception) -> ValueError:
    formats = ", ".join(_FORMATS)
    # What Pillow has to say of bytes in no known format is the address of an object.
    why = "" if isinstance(error, UnidentifiedImageError) else f": {error}"
    return ValueError(f"picture {picture.content_hash} cannot be read as one of {formats}{why}")


def _num_pixels(image: Image.Image) -> int:
    return image.width * image.height
