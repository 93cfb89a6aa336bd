"""Sampled tokens as the vendors' clients read them, beside their log-probabilities."""

from codecs import getincrementaldecoder

from longhaul_trainer.gateway.exchange import ChatRequest, Choice

__all__ = ["text_offsets", "token_names"]

_decoder_of_utf8 = getincrementaldecoder("utf-8")


def token_names(choice: Choice, request: ChatRequest) -> list[str]:
    r"""The text of each token.

    Bytes that are no whole character are escaped as OpenAI's server does, `\xc3`: the field
    `bytes` has them as they are. `token_id:5` where the client asks for
    `return_tokens_as_token_ids`.
    """
    if request.names_tokens_by_id:
        return [f"token_id:{token}" for token in choice.tokens]
    return [known.decode(errors="backslashreplace") for known in choice.token_bytes]


def text_offsets(choice: Choice) -> list[int]:
    """Where in the reply's text each token begins, in characters; never beyond its end."""
    decoder, place = _decoder_of_utf8("replace"), 0
    offsets: list[int] = []
    for known in choice.token_bytes:
        offsets.append(min(place, len(choice.text)))
        place += len(decoder.decode(known))
    return offsets
