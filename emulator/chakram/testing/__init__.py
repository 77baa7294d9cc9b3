"""Helpers for tests: virtual wire and clock, strategies.

They need more than the product does: ``pip install chakram[testing]``.
"""

from importlib.util import find_spec

if find_spec("hypothesis") is None:
    raise ImportError(
        "chakram.testing needs hypothesis: pip install 'chakram[testing]'",
        name="hypothesis",
    )
