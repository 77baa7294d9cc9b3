"""Chakram: replay AI training traffic as RoCEv2 through a network under test.

`__all__` lists the public names. They are loaded on first use, so that data-plane
processes, which import this package, start quickly. The import itself loads only the
finder that chooses between the compiled and the plain form of each hot module.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from chakram._compiled import install

if TYPE_CHECKING:
    from chakram.api import Results, open_run, run, simulate
    from chakram.chakra.sets.trace_set import TraceSet, load_trace_set
    from chakram.config.experiment import Experiment, load_experiment
    from chakram.foundation.errors import ChakramError

__all__ = [
    "ChakramError",
    "Experiment",
    "Results",
    "TraceSet",
    "__version__",
    "load_experiment",
    "load_trace_set",
    "open_run",
    "run",
    "simulate",
]

__version__ = "0.2.0"

_HOMES = {
    "ChakramError": "chakram.foundation.errors",
    "Experiment": "chakram.config.experiment",
    "Results": "chakram.api",
    "TraceSet": "chakram.chakra.sets.trace_set",
    "load_experiment": "chakram.config.experiment",
    "load_trace_set": "chakram.chakra.sets.trace_set",
    "open_run": "chakram.api",
    "run": "chakram.api",
    "simulate": "chakram.api",
}

install()


if not TYPE_CHECKING:  # or every misspelled name would have a type

    def __getattr__(name: str) -> object:
        """Load a public name on first use."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
