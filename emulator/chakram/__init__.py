"""Chakram: replay AI training traffic as RoCEv2 through a network under test.

This module stays light on purpose: data-plane processes import it at start, so it
imports nothing of the library.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
