"""Train a small mixture-of-experts model on CPUs, and record one iteration.

Every rank holds the whole dense part of the model and one expert.  DDP averages the
gradients of the dense part; all-to-alls carry tokens to their experts and back::

    torchrun --standalone --nproc-per-node 4 train.py --out traces
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

TOKENS = 256
WIDTH = 128
# A new process allocates memory and DDP forms its buckets in the first iterations.
SKIPPED = 3


class Exchange(torch.autograd.Function):
    """An uneven all-to-all of rows; its gradient takes the opposite direction."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        """Send *sent[r]* rows to rank r, and return the *received[r]* rows from it."""
        ctx.sent, ctx.received = sent, received
        arrived = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(arrived, rows.contiguous(), received, sent)
        return arrived

    @staticmethod
    def backward(ctx, gradient):
        """Send the gradient of each row to the rank that the row came from."""
        return Exchange.apply(gradient, ctx.received, ctx.sent), None, None


class Experts(nn.Module):
    """One expert per rank, and the exchange of tokens with those of other ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.expert = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, tokens: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Return the output of the *chosen* expert, a rank, for each token."""
        order = chosen.argsort(stable=True)
        counts = chosen.bincount(minlength=dist.get_world_size())
        counts_here = torch.empty_like(counts)
        dist.all_to_all_single(counts_here, counts)
        sent, received = counts.tolist(), counts_here.tolist()

        arrived = Exchange.apply(tokens[order], sent, received)
        returned = Exchange.apply(self.expert(arrived), received, sent)
        return torch.zeros_like(tokens).index_copy(0, order, returned)


class Model(nn.Module):
    """A dense layer and a router, both averaged by DDP, and the experts."""

    def __init__(self) -> None:
        super().__init__()
        dense = nn.Sequential(nn.Linear(WIDTH, 8 * WIDTH), nn.GELU())
        dense.append(nn.Linear(8 * WIDTH, WIDTH))
        self.dense = DistributedDataParallel(dense)
        self.router = DistributedDataParallel(nn.Linear(WIDTH, dist.get_world_size()))
        self.experts = Experts()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the output of the model for *tokens*, one per row."""
        hidden = tokens + self.dense(tokens)
        weight, chosen = self.router(hidden).softmax(-1).max(-1)
        return hidden + weight[:, None] * self.experts(hidden, chosen)


def train(out: Path, iterations: int) -> None:
    """Train for some iterations, and record the one after those skipped in *out*."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    out.mkdir(parents=True, exist_ok=True)
    observer = ExecutionTraceObserver()
    observer.register_callback(str(out / f"host_{rank}.json"))
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=SKIPPED - 1, warmup=1, active=1, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(
            str(out / f"kineto_{rank}.json")
        ),
        execution_trace_observer=observer,
    ) as profiler:
        for _ in range(iterations):
            tokens = torch.randn(TOKENS, WIDTH)
            loss = (model(tokens) - tokens).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    if rank == 0:
        print(f"loss {loss.item():.3f}; recorded iteration {SKIPPED} in {out}")


def main() -> None:
    """Train as one of the ranks that torchrun started."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("traces"))
    parser.add_argument("--iterations", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(options.out, options.iterations)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
