from __future__ import annotations

import pytest

from chakram.cli.certs import parse_agents
from chakram.errors import ConfigError


def test_agents_have_names_and_addresses() -> None:
    assert parse_agents(["h1=192.0.2.11", "h2=192.0.2.12,h2.example"]) == {
        "h1": ["192.0.2.11"],
        "h2": ["192.0.2.12", "h2.example"],
    }


@pytest.mark.parametrize("text", ["h1", "=192.0.2.1", "h1=", ""])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="it is not NAME=ADDR"):
        parse_agents([text])


def test_a_name_comes_once() -> None:
    with pytest.raises(ConfigError, match="h1 comes twice"):
        parse_agents(["h1=192.0.2.1", "h1=192.0.2.2"])
