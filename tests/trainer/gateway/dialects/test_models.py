"""Lists of models, read by each vendor's client."""

import anthropic
import openai
import pytest
from google import genai
from google.genai import types

from longhaul_trainer.gateway.dialects.models import find_model, list_models
from longhaul_trainer.gateway.exchange import ApiError


def test_every_vendors_client_lists_them(address: str) -> None:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="key") as client:
        assert [model.id for model in client.models.list()] == ["auto", "small"]
    with anthropic.Anthropic(base_url=address, api_key="key") as other:
        assert [model.id for model in other.models.list()] == ["auto", "small"]
    third = genai.Client(api_key="key", http_options=types.HttpOptions(base_url=address))
    assert [model.name for model in third.models.list()] == ["models/auto", "models/small"]
    third.close()


def test_one_model_is_of_both_clients_types() -> None:
    model = find_model("auto", ["auto", "small"], created=1_760_000_000)

    assert openai.types.Model.model_validate(model).id == "auto"
    assert anthropic.types.ModelInfo.model_validate(model).created_at.year == 2025
    assert model["name"] == "models/auto"
    assert list_models(["auto"], created=1_760_000_000)["data"] == [model]


def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(ApiError, match="here are auto, small") as caught:
        find_model("large", ["auto", "small"], created=0)

    assert caught.value.status == 404
