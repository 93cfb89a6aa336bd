# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# (transformers annotates little of what it returns)
"""Texts that spell the name of a control token, and stay texts.

A chat template pastes what users, tools and environments wrote between marks of its own, and a
tokenizer reads the name of a control token as that token, whoever wrote it. So a text could end its
turn and begin another. Here each name in a text is cut in two before the template has it, by digits
that nobody can guess; what the template itself writes is whole, and becomes tokens. Of a text that
spells no name nothing is changed (docs/decisions/0033-prompts-as-tokens.md).
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import tokenizers
from transformers import AddedToken, PreTrainedTokenizerBase

from longhaul_core.errors import RendererFailure
from longhaul_trainer.rendering.encoding import TextEncoder, backend_of
from longhaul_trainer.rendering.syntax import Tokenizer

__all__ = ["Marks", "finder_of_marks"]

logger = logging.getLogger(__name__)

_DIGITS = 24
"""Of a cut. Digits are the same in JSON, in XML, and in capitals, whatever a template makes of a
text."""
_WORD = re.compile(r"[\w\s\u2581]*")


class Marks:
    """A tokenizer's control tokens: which are read in a prompt, and which are only spelled there.

    Threads may share it.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, encode: TextEncoder) -> None:
        """Of one tokenizer, which is tried on each name.

        Args:
            tokenizer: Special tokens are marks, and other added ones but for words and white space.
            encode: Makes its texts into tokens, names into control tokens.

        Raises:
            RendererFailure: A text that only spells a name becomes its token all the same.
        """
        added = tokenizer.added_tokens_decoder
        self._tokenizer = tokenizer
        self._encode = encode
        self._ids = {piece.content: token for token, piece in added.items() if _is_mark(piece)}
        self._controls = frozenset(self._ids.values())
        self._names = _pattern(self._ids)
        self._cut = _digits()
        self._aliases = {name: _digits() for name in self._ids}
        self._plain: Tokenizer | None = None
        """The same tokenizer without marks; None where it cannot be had."""
        self._real: dict[int, Sequence[int]] = {}
        """What stands for tokens of `_plain` that are not the model's."""
        self._normal = _normalizer(tokenizer, added.values())
        self._told: set[str] = set()
        self._replied: dict[frozenset[str], re.Pattern[str]] = {}
        backend = backend_of(tokenizer)
        if backend is not None and self._ids:
            self._read_plainly(backend, added)
        self._require_texts()

    def in_text(self, text: str) -> bool:
        """Whether a text spells a name of a control token."""
        return self._spelling(text) is not None

    def as_text(self, text: str, *, tags: Collection[str] = ()) -> str:
        """A text as the template is to have it: no name that it spells becomes a token.

        Args:
            text: Of a message, of a tool, or of a call.
            tags: Names that stay marks, if they are any.
        """
        spelling = self._spelling(text)
        if spelling is None:
            return text
        names = self._names
        if tags:
            names, stripped = self._but(frozenset(tags)), spelling
            for tag in tags:  # a template may take them out, and join what was between
                stripped = stripped.replace(tag, "")
            if len(names.findall(stripped)) > len(names.findall(spelling)):
                names = self._names
        while names.search(spelling):  # a second time where names overlap
            spelling = names.sub(self._cut_in_two, spelling)
        return spelling

    def apart(self, before: str, text: str) -> str:
        """What goes between two texts that the template may join: a cut where both spell a name."""
        joined, seam = before + text, len(before)
        found = self._names.finditer(joined)
        return self._cut if any(one.start() < seam < one.end() for one in found) else ""

    def all_as_text(self, value: Any) -> Any:  # noqa: ANN401  JSON
        """A JSON value whose texts and keys are as `as_text` has them."""
        if isinstance(value, str):
            return self.as_text(value)
        if isinstance(value, Mapping):
            items = cast("Mapping[str, Any]", value).items()
            return {self.as_text(key): self.all_as_text(item) for key, item in items}
        if isinstance(value, list):
            return [self.all_as_text(item) for item in cast("list[Any]", value)]
        return value

    def shown(self, text: str) -> str:
        """What the template wrote, as it is read: names that were cut are whole again."""
        return text.replace(self._cut, "")

    def tokens(self, text: str) -> list[int]:
        """Tokens of what the template wrote."""
        if self._cut not in text:
            return self._encode(text)
        if self._plain is None:
            return [token for piece in text.split(self._cut) for token in self._encode(piece)]
        return self._plainly(text)

    def _spelling(self, text: str) -> str | None:
        """The text, as the tokenizer normalizes it if need be; None where it spells no name."""
        if self._names.search(text):
            return text
        if self._normal is not None and not text.isascii():
            normal = self._normal(text)
            return normal if self._names.search(normal) else None
        return None

    def _cut_in_two(self, found: re.Match[str]) -> str:
        name = found[0]
        if name not in self._told:
            self._told.add(name)
            logger.warning("a text spells %s, and the model reads it as a text", name)
        return f"{name[0]}{self._cut}{name[1:]}"

    def _but(self, tags: frozenset[str]) -> re.Pattern[str]:
        known = self._replied.get(tags)
        if known is None:
            known = self._replied[tags] = _pattern(name for name in self._ids if name not in tags)
        return known

    def _plainly(self, text: str) -> list[int]:
        """Tokens of a text by the model alone: what the template wrote goes by other names."""
        aliased = self._names.sub(lambda found: self._aliases[found[0]], text)
        found = self._encoded(self.shown(aliased))
        return [real for token in found for real in self._real.get(token, (token,))]

    def _encoded(self, text: str) -> list[int]:
        assert self._plain is not None
        return self._plain.encode(text, add_special_tokens=False).ids

    def _read_plainly(self, backend: Tokenizer, added: Mapping[int, AddedToken]) -> None:
        """Make the same tokenizer without marks, but for their aliases.

        It shares the vocabulary, so it costs next to nothing.
        """
        plain: Tokenizer = tokenizers.Tokenizer(backend.model)
        if backend.normalizer is not None:
            plain.normalizer = backend.normalizer
        if backend.pre_tokenizer is not None:
            plain.pre_tokenizer = backend.pre_tokenizer
        for token, piece in added.items():
            known_as = self._aliases.get(piece.content, piece.content)
            plain.add_tokens(
                [
                    tokenizers.AddedToken(
                        known_as,
                        single_word=piece.single_word,
                        lstrip=piece.lstrip,
                        rstrip=piece.rstrip,
                        normalized=piece.normalized,
                    )
                ]
            )
            self._real[cast("int", plain.token_to_id(known_as))] = (token,)
        self._plain = plain
        for name, token in self._ids.items():
            if token in self._encoded(name):
                self._real[token] = self._in_pieces(name)
        probe = "".join(f"{name}a {name} b\n" for name in self._ids)
        if self._plainly(probe) != self._encode(probe):
            logger.info(
                "names of control tokens that a text spells are read in two halves by the "
                "tokenizer of %s: without them it makes other tokens of other texts",
                self._tokenizer.name_or_path,
            )
            self._plain = None

    def _in_pieces(self, name: str) -> list[int]:
        """Tokens of a name whose token the vocabulary makes of its letters."""
        for place in range(1, len(name)):
            found = [*self._encoded(name[:place]), *self._encoded(name[place:])]
            if self._controls.isdisjoint(found):
                return found
        raise self._unsafe(name)

    def _require_texts(self) -> None:
        self._told |= self._ids.keys()
        spelled = "".join(f"{name}a {name} b\n" for name in self._ids)
        found = self.tokens(self.as_text(spelled))
        self._told.clear()
        if not self._controls.isdisjoint(found):
            raise self._unsafe(next(name for name in self._ids if self._ids[name] in found))
        read = cast("str", self._tokenizer.decode(found))
        if self._plain is not None and read.strip() != spelled.strip():
            logger.info(
                "the tokenizer of %s loses some of a text that spells control tokens",
                self._tokenizer.name_or_path,
            )

    def _unsafe(self, name: str) -> RendererFailure:
        return RendererFailure(
            f"the tokenizer of {self._tokenizer.name_or_path} makes a text that spells {name!r} "
            f"into token {self._ids[name]}, so that an environment's text could end its turn or "
            "begin another; take the name out of the model's vocabulary in tokenizer.json, or "
            "choose another model"
        )


def finder_of_marks(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], bool]:
    """Says whether a text spells the name of a control token, of which there may be thousands."""
    names = _pattern(
        piece.content for piece in tokenizer.added_tokens_decoder.values() if _is_mark(piece)
    )
    return lambda text: names.search(text) is not None


def _is_mark(piece: AddedToken) -> bool:
    """Whether an added token is a control token: no text may become it.

    Special ones are, and others but for words and white space, which some tokenizers add for their
    length alone. A name of one letter cannot be told from a text.
    """
    name = piece.content
    return len(name) > 1 and (piece.special or not _WORD.fullmatch(name))


def _digits() -> str:
    return "".join(secrets.choice("0123456789") for _ in range(_DIGITS))


def _normalizer(
    tokenizer: PreTrainedTokenizerBase, added: Iterable[AddedToken]
) -> Callable[[str], str] | None:
    """What a tokenizer makes of a text before it looks for some names; None where it never does."""
    normalizer = getattr(backend_of(tokenizer), "normalizer", None)
    if normalizer is None or not any(piece.normalized for piece in added if _is_mark(piece)):
        return None
    normal: Callable[[str], str] = normalizer.normalize_str
    return normal if normal("a") == "a" else None


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Finds the first of the names, the longest where several begin; nothing where none is given.

    The names are a tree of letters: at a letter where none begins, most texts are passed by at
    once, however many names there are.
    """
    tree: dict[str, Any] = {}
    for name in names:
        node = tree
        for letter in name:
            node = node.setdefault(letter, {})
        node[""] = None
    return re.compile(_branches(tree) if tree else r"(?!)")


def _branches(tree: Mapping[str, Any]) -> str:
    grown = [re.escape(letter) + _branches(node) for letter, node in tree.items() if letter]
    if not grown:
        return ""
    if len(grown) == 1 and "" not in tree:
        return grown[0]
    return f"(?:{'|'.join(grown)})" + ("?" if "" in tree else "")
