"""Whatever stands in an experiment file, it is read or refused with our error."""

from __future__ import annotations

import contextlib
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from chakram.config.experiment import Experiment, parse_experiment
from chakram.foundation.errors import ConfigError
from tests.unit.config.texts import QUICKSTART

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(["1Gbit", "64KiB", "10us", "auto", "linear", "udp:eth0", "off"]),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "kind",
                    "name",
                    "trace",
                    "synth",
                    "path",
                    "hosts",
                    "rate",
                    "clos",
                    "order",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(section=st.sampled_from(list(Experiment.model_fields)), value=values)
def test_any_value_is_read_or_refused_with_our_error(
    section: str, value: object
) -> None:
    data = yaml.safe_load(QUICKSTART)
    alias = Experiment.model_fields[section].alias or section
    data[alias] = value
    with contextlib.suppress(ConfigError):
        parse_experiment(json.dumps(data))


@given(text=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_with_our_error(text: bytes) -> None:
    with pytest.raises(ConfigError):
        parse_experiment(text)
