"""Options that name a hosted model, the same for every command that has one."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from longhaul_core.errors import ConfigError

if TYPE_CHECKING:
    from longhaul_trainer.gateway.hosted import Endpoint

EndpointUrl = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="Address of a hosted model, as clients take it: https://api.openai.com/v1, "
        "https://api.anthropic.com.",
    ),
]
ModelName = Annotated[str | None, typer.Option("--model", help="The vendor's name of the model.")]
Api = Annotated[
    Literal["openai", "anthropic"],
    typer.Option(help="What the endpoint speaks: chat completions, or Anthropic's messages."),
]
KeyVariable = Annotated[
    str | None,
    typer.Option(
        help="Environment variable that holds the key, such as OPENAI_API_KEY.",
        show_default="no key is sent",
    ),
]
PricePrompt = Annotated[
    float | None, typer.Option(min=0, help="US dollars for a million prompt tokens.")
]
PriceReply = Annotated[
    float | None, typer.Option(min=0, help="US dollars for a million tokens of replies.")
]
MaxConcurrent = Annotated[int, typer.Option(min=1, help="Requests in flight at once.")]


def endpoint_given(
    *,
    url: str,
    model: str | None,
    api: Literal["openai", "anthropic"],
    key_variable: str | None,
    prices: tuple[float | None, float | None],
    max_concurrent: int,
) -> "Endpoint":
    """The endpoint that the options describe, with its key from the environment.

    Raises:
        ConfigError: One of them is wrong.
    """
    from pydantic import ValidationError

    from longhaul_trainer.config.upstreams import UpstreamConfig
    from longhaul_trainer.gateway.hosted.endpoint import endpoint_of

    if model is None:
        raise ConfigError("--endpoint needs --model: the vendor's name of the model")
    try:
        described = UpstreamConfig(
            url=url,
            model=model,
            api=api,
            api_key_variable=key_variable,
            price_prompt=prices[0],
            price_reply=prices[1],
            max_concurrent=max_concurrent,
        )
    except ValidationError as error:
        options = {"url": "--endpoint", "api_key_variable": "--key-variable"}
        lines = [
            f"{options.get(str(part['loc'][0]), str(part['loc'][0])) if part['loc'] else '--price'}"
            f": {part['msg'].removeprefix('Value error, ')}"
            for part in error.errors()
        ]
        raise ConfigError("\n".join(lines)) from None
    return endpoint_of(described, setting="--key-variable")
