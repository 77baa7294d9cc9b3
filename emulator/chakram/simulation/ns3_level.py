"""The packet level with the hosts of ns-3's RDMA model, on modeled switches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.foundation.errors import ConfigError
from chakram.predict.levels.ns3_packet_level import PacketLevel
from chakram.predict.simulator.ns3_host_model import Ns3Hosts
from chakram.predict.simulator.switch_fabric import SwitchFabric
from chakram.replay.endpoint_builder import CongestionSettings
from chakram.switch.profiles import Profile

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.plan.transport import TransportPlan
    from chakram.predict.levels.level_network import LevelNetwork
    from chakram.predict.levels.message_times import LevelTimes
    from chakram.topology.topology import Topology


def packet_level(
    experiment: Experiment,
    topology: Topology,
    network: LevelNetwork,
    times: LevelTimes,
    transport: TransportPlan,
) -> PacketLevel:
    """Return a packet-level model with modeled switches and ns-3 hosts.

    The switches have profile ``ns3`` unless the experiment sets one.

    Raises:
        ConfigError: If packets of one flow could overtake each other.
    """
    profile = Profile(name="ns3")
    if experiment.fabric.simulated_switches is not None:
        profile = experiment.fabric.switching(experiment.seed).profile
    if profile.balancing != "hash":
        raise ConfigError(
            "fabric.switches.balancing",
            f"is {profile.balancing}, but cost model astra-sim-ns3 hashes flows",
            "remove it",
        )
    control = CongestionSettings(transport).control
    return PacketLevel(
        network,
        times,
        fabric=SwitchFabric(
            topology, profile, ecn=bool(transport.ecn), seed=experiment.seed
        ),
        settings=Ns3Hosts(window=experiment.simulation.window),
        make_control=None if transport.congestion_control == "none" else control,
    )
