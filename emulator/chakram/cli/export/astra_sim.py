"""``chakram export astra-sim``: an experiment as the inputs of ASTRA-sim."""

from __future__ import annotations

from pathlib import Path

from chakram.cli.export.source import Force, Out, refuse, write
from chakram.cli.options import ExperimentPath, Json, Overrides, read_experiment

__all__ = ["astra_sim"]


def astra_sim(
    experiment: ExperimentPath,
    out: Out = Path(),
    overrides: Overrides = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the inputs of ASTRA-sim: workload, system, network, memory.

    One iteration, for its analytical networks where they have such a topology, and for
    ns-3.
    """
    settings, _ = read_experiment(experiment, overrides)
    from chakram.chakra.read.groups import encode_group_file
    from chakram.chakra.write.new_set import GROUP_FILE, new_trace_set
    from chakram.controller.astra_sim_inputs import PREFIX, astra_sim_inputs

    inputs = astra_sim_inputs(settings)
    refuse(out, inputs.files, force=force)
    with new_trace_set(out, prefix=PREFIX, force=force) as new:
        for name, records in inputs.traces():
            with new.open(name) as file:
                file.writelines(records)
        if groups := inputs.workload.groups:
            with new.open(GROUP_FILE) as file:
                file.write(
                    encode_group_file({str(n): ranks for ranks, n in groups.items()})
                )
        written = new.written()
    write(
        out,
        inputs.files,
        force=force,
        as_json=as_json,
        notes=inputs.notes,
        also=written,
    )
