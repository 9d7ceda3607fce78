"""GET /v1/models and GET /v1/models/{id}."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.json_response import json_response
from octavo.server.openai.fields import ModelList
from octavo.server.serving import serving_of


async def list_models(request: Request) -> Response:
    """Every name the model is served under. An error until it is ready: clients take an answer for readiness."""
    serving = serving_of(request)
    serving.engine.check_ready()
    return json_response(ModelList(serving.models()))


async def retrieve_model(request: Request) -> Response:
    """One of them; the name may contain slashes."""
    serving = serving_of(request)
    serving.engine.check_ready()
    name = serving.model_name(request.path_params["model_id"])
    [model] = [model for model in serving.models() if model.id == name]
    return json_response(model)
