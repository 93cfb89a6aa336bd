"""What all answers have in common: they are read from the store's named tuples."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Answer"]


class Answer(BaseModel):
    """Base of every answer; the strings under fields become descriptions in OpenAPI."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True, frozen=True)
