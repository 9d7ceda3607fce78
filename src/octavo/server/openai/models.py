"""GET /v1/models and GET /v1/models/{id}."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.server.json_response import json_response
from octavo.server.serving import Serving, serving_of


class Model(msgspec.Struct, frozen=True, tag_field="object", tag="model"):
    """One name the model is served under."""

    id: str
    created: int
    max_model_len: int
    root: str
    owned_by: str = "octavo"
    parent: str | None = None


class ModelList(msgspec.Struct, frozen=True, tag_field="object", tag="list"):
    """All names."""

    data: list[Model]


async def list_models(request: Request) -> Response:
    """Every name the model is served under. An error until it is ready: clients take an answer for readiness."""
    serving = serving_of(request)
    serving.engine.check_ready()
    return json_response(ModelList([_model(serving, name) for name in serving.model_names]))


async def retrieve_model(request: Request) -> Response:
    """One of them; the name may contain slashes."""
    serving = serving_of(request)
    serving.engine.check_ready()
    return json_response(_model(serving, serving.model_name(request.path_params["model_id"])))


def _model(serving: Serving, name: str) -> Model:
    max_model_len = serving.engine.ready.limits.max_model_len
    return Model(name, serving.created, max_model_len, root=serving.model_names[0])
