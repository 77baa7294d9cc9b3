"""``chakram trace synth``: write made-up traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chakram.cli.options import Json, print_json
from chakram.errors import ConfigError
from chakram.units import parse_flops, parse_size, parse_time

__all__ = ["app"]

app = typer.Typer(name="synth", help="Write made-up traces.", no_args_is_help=True)


@app.command()
def moe(
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    ranks: Annotated[int, typer.Option(help="Number of ranks, ep x dp.")] = 8,
    ep: Annotated[int, typer.Option(help="Ranks that share out the experts.")] = 4,
    dp: Annotated[int, typer.Option(help="Copies of each expert.")] = 2,
    layers: Annotated[int, typer.Option(help="Number of layers.")] = 4,
    hidden: Annotated[int, typer.Option(help="Length of a token's vector.")] = 256,
    ffn_hidden: Annotated[int, typer.Option(help="Inner width of an expert.")] = 1024,
    sequence: Annotated[int, typer.Option(help="Tokens of a sample.")] = 512,
    micro_batch: Annotated[int, typer.Option(help="Samples of one rank.")] = 1,
    top_k: Annotated[int, typer.Option(help="Experts of each token.")] = 2,
    experts_per_rank: Annotated[int, typer.Option(help="Experts of one rank.")] = 1,
    bytes_per_element: Annotated[int, typer.Option(help="Bytes of one number.")] = 2,
    peak: Annotated[str, typer.Option(help="Speed of a rank.")] = "50GFLOPS",
    all_to_all: Annotated[
        str | None, typer.Option(help="Send buffer of an all-to-all, e.g. 512KiB.")
    ] = None,
    all_reduce: Annotated[
        str | None, typer.Option(help="Expert gradients of a layer, e.g. 1MiB.")
    ] = None,
    dense: Annotated[
        str | None, typer.Option(help="Dense gradients of a layer; 0B: none.")
    ] = None,
    attention: Annotated[
        str | None, typer.Option(help="Forward time of an attention, e.g. 10ms.")
    ] = None,
    expert: Annotated[
        str | None, typer.Option(help="Forward time of the experts, e.g. 20ms.")
    ] = None,
    replace: Annotated[
        bool, typer.Option(help="Replace a set that is there already.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write one training iteration of a mixture-of-experts model."""
    from chakram.chakra.synth import MoeParameters, synth_moe
    from chakram.chakra.synth_set import MOE_PREFIX, MOE_PRODUCER
    from chakram.chakra.writer import write_trace_set

    def size(option: str, text: str | None) -> int | None:
        return None if text is None else parse_size(text, where=option)

    def time(option: str, text: str | None) -> int | None:
        return None if text is None else parse_time(text, where=option)

    try:
        parameters = MoeParameters(
            ranks=ranks,
            ep=ep,
            dp=dp,
            layers=layers,
            hidden=hidden,
            ffn_hidden=ffn_hidden,
            sequence=sequence,
            micro_batch=micro_batch,
            top_k=top_k,
            experts_per_rank=experts_per_rank,
            bytes_per_element=bytes_per_element,
            peak_flops=parse_flops(peak, where="--peak"),
            all_to_all_bytes=size("--all-to-all", all_to_all),
            all_reduce_bytes=size("--all-reduce", all_reduce),
            dense_bytes=size("--dense", dense),
            attention_ns=time("--attention", attention),
            expert_ns=time("--expert", expert),
        )
    except ValueError as error:
        raise ConfigError("chakram trace synth moe", str(error)) from error
    synthesized = synth_moe(parameters)
    written = write_trace_set(
        out,
        prefix=MOE_PREFIX,
        graphs=synthesized.graphs,
        groups=synthesized.groups,
        producer=MOE_PRODUCER,
        replace=replace,
    )
    if as_json:
        print_json({"written": [str(path) for path in written]})
    else:
        print(f"wrote {len(written)} files; look: chakram trace show {out}")
