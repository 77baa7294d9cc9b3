"""Move PyTorch traces and profiles to names that state their rank.

``ENABLE_PYTORCH_EXECUTION_TRACE=1`` lets every ``torch.profiler.profile`` record an
execution trace, with a random name in the folder for temporary files.  The profile of
the same process states the rank.  Run this on each node, before you gather the files::

    python name_by_rank.py OUT *.et.json profiles/*.json
"""

import json
import shutil
import sys
from pathlib import Path


def name_by_rank(out: Path, paths: list[Path]) -> None:
    """Move pairs of trace and profile to ``host_RANK.json`` and ``kineto_RANK.json``.

    Raises:
        ValueError: If a profile has no trace of its process.
    """
    traces, profiles = {}, {}
    for path in paths:
        content = json.loads(path.read_text(encoding="utf-8"))
        if "nodes" in content:
            traces[content["pid"]] = path
        elif "distributedInfo" in content:
            events = content["traceEvents"]
            process = next(
                each["pid"] for each in events if each.get("cat") == "cpu_op"
            )
            profiles[process] = content["distributedInfo"]["rank"], path
    out.mkdir(parents=True, exist_ok=True)
    for process, (rank, profile) in sorted(profiles.items(), key=lambda item: item[1]):
        if process not in traces:
            raise ValueError(f"{profile}: no execution trace of its process {process}")
        shutil.move(traces[process], out / f"host_{rank}.json")
        shutil.move(profile, out / f"kineto_{rank}.json")
    print(f"{len(profiles)} ranks in {out}")


if __name__ == "__main__":
    name_by_rank(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
