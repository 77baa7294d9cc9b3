"""``chakram validate``: check the files of a run directory."""

from __future__ import annotations

import typer

from chakram.cli.common.fast_arrow_import import import_arrow_only
from chakram.cli.common.options import Json, RunPath, print_json
from chakram.foundation.errors import InputError


def validate(
    run: RunPath,
    as_json: Json = False,
) -> None:
    """Check that a run directory is complete and consistent.

    The checks cover files, columns and sums. The exit code is 2 if a check fails.
    """
    import_arrow_only()
    from chakram.run_directory.reader import open_run
    from chakram.run_directory.validation import check_run

    results = open_run(run)
    found = check_run(results)
    manifest = results.manifest
    if as_json:
        findings = [each._asdict() for each in found]
        document = {"directory": str(run), "valid": not found, "findings": findings}
        print_json("validation", document | {"status": manifest.status})
    else:
        for each in found:
            print(each)
        print(
            f"{run}: {manifest.status} run of {manifest.world}, "
            + (f"{len(found)} finding(s)" if found else "valid")
        )
    if found:
        raise typer.Exit(InputError.exit_code)
