"""Recorder of the set ``gloo_moe_6r.tar.xz``: six gloo processes on one host.

In two expert groups of three ranks (0, 2, 4 and 1, 3, 5) all hand rows to one another
with uneven all_to_alls; all ranks reduce a gradient, and compute meanwhile.  It needs
the extra ``bench``:

    .venv/bin/python tests/data/gloo_moe_6r.py
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
from pathlib import Path

RANKS = 6
GROUPS = ((0, 2, 4), (1, 3, 5))
STEPS = 2
WIDTH = 64
GRADIENT_BYTES = WIDTH * 4 * WIDTH * 4


def rows(source: int, destination: int) -> int:
    """Return how many rows of a token a rank hands to another of its group."""
    return 4 + (5 * source + 3 * destination) % 11


def work(rank: int, folder: str, port: int) -> None:
    """Do two steps as one of the processes, recorded."""
    import torch
    import torch.distributed as dist
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    made = [dist.new_group(list(members)) for members in GROUPS]
    members, experts = next(
        (members, group)
        for members, group in zip(GROUPS, made, strict=True)
        if rank in members
    )
    up, down = torch.randn(WIDTH, 4 * WIDTH), torch.randn(4 * WIDTH, WIDTH)
    tokens = torch.randn(64, WIDTH)
    sent = [rows(rank, each) for each in members]
    received = [rows(each, rank) for each in members]

    def step() -> None:
        hidden = torch.relu(tokens @ up) @ down
        inputs = hidden[: sum(sent)].contiguous()
        outputs = torch.empty(sum(received), WIDTH)
        dist.all_to_all_single(outputs, inputs, received, sent, group=experts)
        answers = torch.relu(outputs @ up) @ down
        back = torch.empty(sum(sent), WIDTH)
        dist.all_to_all_single(back, answers, sent, received, group=experts)
        gradient = up + back.mean()
        reducing = dist.all_reduce(gradient, async_op=True)
        torch.relu(tokens @ up) @ down
        reducing.wait()
        up.add_(gradient, alpha=0.001)

    step()
    dist.barrier()
    observer = ExecutionTraceObserver()
    observer.register_callback(f"{folder}/host_{rank}.json")
    with profile(
        activities=[ProfilerActivity.CPU], execution_trace_observer=observer
    ) as recorded:
        for _ in range(STEPS):
            step()
    recorded.export_chrome_trace(f"{folder}/kineto_{rank}.json")
    dist.barrier()
    dist.destroy_process_group()


def pack(folder: Path, archive: Path) -> None:
    """Write the files of *folder* without what only says where they were recorded."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in sorted(folder.iterdir()):
            content = json.loads(path.read_text(encoding="utf-8"))
            if path.name.startswith("kineto"):
                content = {
                    key: content[key] for key in ("schemaVersion", "traceEvents")
                }
            data = json.dumps(content, separators=(",", ":")).encode()
            info = tarfile.TarInfo(path.name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def main() -> None:
    """Record the set again."""
    import torch.multiprocessing

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (folder, 29_731), RANKS)
        pack(Path(folder), Path(__file__).with_suffix(".tar.xz"))


if __name__ == "__main__":
    main()
