"""Person: what the clients that know pydantic ask for as structured output."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

PERSON_QUESTION = "Invent a person."


class Person(BaseModel):
    """Small enough for any model to finish."""

    model_config = ConfigDict(extra="forbid")  # or a schema lets the model go on inventing fields

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=99)
