"""Options that name a hosted model, the same for every command that has one."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from longhaul_core.errors import ConfigError

if TYPE_CHECKING:
    from longhaul_trainer.gateway.hosted import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedOptions:
    """The options, as a command was given them."""

    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address of a hosted model, as clients take it: https://api.openai.com/v1, "
            "https://api.anthropic.com.",
        ),
    ] = None
    model: Annotated[str | None, typer.Option(help="The vendor's name of the model.")] = None
    api: Annotated[
        Literal["openai", "anthropic"],
        typer.Option(help="What the endpoint speaks: chat completions, or Anthropic's messages."),
    ] = "openai"
    key_variable: Annotated[
        str | None,
        typer.Option(
            help="Environment variable that holds the key, such as OPENAI_API_KEY.",
            show_default="no key is sent",
        ),
    ] = None
    price_prompt: Annotated[
        float | None, typer.Option(min=0, help="US dollars for a million prompt tokens.")
    ] = None
    price_reply: Annotated[
        float | None, typer.Option(min=0, help="US dollars for a million tokens of replies.")
    ] = None
    max_concurrent: Annotated[int, typer.Option(min=1, help="Requests in flight at once.")] = 16

    def refuse(self, reason: str) -> None:
        """Refuse every option of a hosted model where none is asked.

        Raises:
            ConfigError: One is given; the message ends with the reason.
        """
        for name in ("endpoint", "model", "key_variable", "price_prompt", "price_reply"):
            if getattr(self, name) is not None:
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} is for a hosted model{reason}")

    def described(self) -> "Endpoint | None":
        """The endpoint, with its key from the environment; None without `--endpoint`.

        Raises:
            ConfigError: One of the options is wrong.
        """
        if self.endpoint is None:
            return None
        from pydantic import ValidationError

        from longhaul_trainer.config.upstreams import UpstreamConfig
        from longhaul_trainer.gateway.hosted.endpoint import endpoint_of

        if self.model is None:
            raise ConfigError("--endpoint needs --model: the vendor's name of the model")
        try:
            described = UpstreamConfig(
                url=self.endpoint,
                model=self.model,
                api=self.api,
                api_key_variable=self.key_variable,
                price_prompt=self.price_prompt,
                price_reply=self.price_reply,
                max_concurrent=self.max_concurrent,
            )
        except ValidationError as error:
            options = {"url": "--endpoint", "api_key_variable": "--key-variable"}
            lines: list[str] = []
            for part in error.errors():
                place = str(part["loc"][0]) if part["loc"] else "--price"
                reason = part["msg"].removeprefix("Value error, ")
                lines.append(f"{options.get(place, place)}: {reason}")
            raise ConfigError("\n".join(lines)) from None
        return endpoint_of(described, setting="--key-variable")


def takes_hosted_model(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `HostedOptions` in the place of its parameter `hosted`."""
    options = inspect.signature(HostedOptions, eval_str=True).parameters

    @functools.wraps(command)
    def with_options(**given: object) -> None:
        values: dict[str, Any] = {name: given.pop(name) for name in options}
        command(**given, hosted=HostedOptions(**values))

    whole = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in whole.parameters.values():
        parameters += options.values() if parameter.name == "hosted" else [parameter]
    # typer reads the options from the signature.
    vars(with_options)["__signature__"] = whole.replace(parameters=parameters)
    return with_options
