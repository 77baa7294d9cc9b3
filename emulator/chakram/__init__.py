"""Chakram: replay AI training traffic as RoCEv2 through a network under test.

This module stays light on purpose: data-plane processes import it at start, so it
imports nothing of the library but the finder that chooses between the compiled and the
plain form of the hot modules.
"""

from chakram._compiled import install

__all__ = ["__version__"]

__version__ = "0.1.0"

install()
