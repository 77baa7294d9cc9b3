"""Simulate an experiment with two windows, and explain the slower one.

python docs/examples/compare_windows.py configs/quickstart-small.yaml 64KiB 256KiB
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import chakram


def slowest_ns(results: chakram.Results) -> int:
    """Return the longest completion time of a message."""
    return max((int(each) for each in results.flows["fct_ns"].to_pylist()), default=0)


def mean_ns(results: chakram.Results) -> float:
    """Return the mean time of an iteration."""
    return max((each.mean_ns for each in results.summary().iterations), default=0.0)


def main(arguments: Sequence[str]) -> int:
    """Print the results; return the exit code."""
    file, *windows = arguments
    try:
        experiment: chakram.Experiment = chakram.load_experiment(file)
        runs = [
            chakram.simulate(experiment, set={"transport.window": window})
            for window in windows
        ]
    except chakram.ChakramError as error:
        print(f"{error.where}: {error.found}", error.hint or "", file=sys.stderr)
        return error.exit_code
    for window, results in zip(windows, runs, strict=True):
        print(window, f"{mean_ns(results) / 1e6:.3f} ms, slowest message", end=" ")
        print(f"{slowest_ns(results) / 1e6:.3f} ms, in {results.path}")
    slower = max(runs, key=mean_ns)
    cause = slower.why().first
    print("no fault" if cause is None else cause)
    for row in chakram.open_run(slower.path).collectives()[:3]:
        what = row.identity
        print(what.op.value, what.input_bytes, "bytes on", what.nranks, "ranks")
    largest = runs[0].compare(runs[-1]).first
    print("largest difference:", "none" if largest is None else largest.label)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
