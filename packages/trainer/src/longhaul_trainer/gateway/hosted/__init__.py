"""Models that other servers host: an `Upstream` for OpenAI's chat completions, and Anthropic's."""

from longhaul_trainer.gateway.hosted.endpoint import Endpoint, endpoint_of
from longhaul_trainer.gateway.hosted.model import HostedModel

__all__ = ["Endpoint", "HostedModel", "endpoint_of"]
