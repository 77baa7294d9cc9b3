"""Options for launching the agents of an external fabric."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.foundation.errors import ConfigError

if TYPE_CHECKING:
    from chakram.launch.launched_agents import LaunchOptions

_option = partial(typer.Option, rich_help_panel="Launching agents")
Launch = Annotated[
    str | None,
    _option(
        metavar="KIND",
        help="Start the agents of an external fabric: local, ssh, slurm or mpi. "
        "Default: use agents that already listen.",
    ),
]
Listen = Annotated[
    str,
    _option(
        metavar="ADDRESS[:PORT]",
        help="Address at which launched agents reach this controller. Default: the "
        "address of the interface toward their hosts.",
    ),
]
AgentCommand = Annotated[
    str | None,
    _option(
        metavar="COMMAND",
        help="Command of the agent on the hosts. Default: the agent that "
        "chakram hosts push has copied there, or else chakram-agent.",
    ),
]
LauncherOptions = Annotated[
    list[str] | None,
    _option(
        metavar="OPTION",
        help="Additional option for ssh, srun or mpirun, e.g. "
        "--launcher-option=--partition=gpu. Can be repeated.",
    ),
]
Lease = Annotated[
    str,
    _option(
        metavar="TIME",
        help="Time without a controller after which launched agents exit.",
    ),
]
Tolerate = Annotated[
    int,
    _option(
        metavar="N",
        min=0,
        help="Maximum number of hosts to run without if their agents do not start. "
        "Jobs are left out if too few ports remain for them.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """Options for starting agents, one per field (see `with_options`)."""

    launch: Launch = None
    listen: Listen = ""
    agent: AgentCommand = None
    launcher_option: LauncherOptions = None
    lease: Lease = "10min"
    tolerate: Tolerate = 0

    def options(self) -> LaunchOptions | None:
        """Return the options for launching agents, or None if agents already listen.

        Raises:
            ConfigError: If an option is invalid, or has no effect.
        """
        if self.launch is None:
            for option, value in (
                ("--listen", self.listen),
                ("--agent", self.agent),
                ("--launcher-option", self.launcher_option),
                ("--tolerate", self.tolerate),
            ):
                if value:
                    raise ConfigError(
                        option, "has no effect without --launch", "e.g. --launch ssh"
                    )
            return None
        from chakram.foundation.units import parse_time
        from chakram.launch.launched_agents import LaunchOptions
        from chakram.launch.launchers import launcher

        launcher(self.launch)
        parse_time(self.lease, where="--lease")
        try:
            agent = tuple(shlex.split(self.agent or ""))
        except ValueError as error:
            raise ConfigError(
                f"--agent {self.agent}",
                f"is not a command: {str(error).lower()}",
                "e.g. --agent /opt/chakram/bin/chakram-agent",
            ) from None
        return LaunchOptions(
            kind=self.launch,
            listen=self.listen,
            agent=agent,
            options=tuple(self.launcher_option or ()),
            lease=self.lease,
            tolerate=self.tolerate,
        )

    def arguments(self) -> tuple[str, ...]:
        """Return the options for ``chakram run``, or none if agents already listen.

        Raises:
            ConfigError: As for ``options``.
        """
        if self.options() is None:
            return ()
        given = (
            ("launch", self.launch),
            ("listen", self.listen),
            ("agent", self.agent),
            *(("launcher-option", each) for each in self.launcher_option or ()),
            ("lease", self.lease),
            ("tolerate", self.tolerate),
        )
        return tuple(f"--{name}={value}" for name, value in given if value)
