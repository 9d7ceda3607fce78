"""Sampling defaults: what a model's makers recommend for the parameters that a request leaves open."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.core.sampling_params import RANGES, ParameterError, check_range
from octavo.weights.fields import Fields
from octavo.weights.source import CheckpointError

SamplingDefaults = dict[str, int | float]  # by the fields of SamplingParams


def read_sampling_defaults(fields: Fields, field_by_name: Mapping[str, str]) -> SamplingDefaults:
    """Those that are there; `field_by_name`: what the file calls each parameter.

    Raises CheckpointError for a value that no request could give.
    """
    defaults: SamplingDefaults = {}
    for name, field in field_by_name.items():
        if field in fields:
            value = fields.get(field, object)
            try:
                check_range(name, value, RANGES[name])
            except ParameterError as error:
                raise CheckpointError(f"{fields.place}: {error}; or start with --generation-config vllm") from None
            assert isinstance(value, int | float)
            defaults[name] = value
    return defaults
