"""Experiments that tests read, whole and with mistakes."""

from __future__ import annotations

import re

import pytest

from chakram.config.experiment import parse_experiment
from chakram.foundation.errors import ConfigError

QUICKSTART = """\
version: 1
name: quickstart
jobs:
  - name: moe
    trace: {synth: moe, ranks: 8, ep: 4, dp: 2, layers: 4}
    compute: {from: trace, scale: 1.0}
collectives: {all_reduce: ring, all_to_all: direct}
iterations: {warmup: 2, measured: 20, sync: barrier}
fabric:
  kind: namespaces
  switch: kernel
  topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 4}}
  links: {host: {rate: 250Mbit}, uplink: {rate: 500Mbit}}
  mtu: 4200
transport: {congestion_control: fixed_rate, window: 64KiB, path_mtu: 4096}
"""

EXTERNAL = """\
version: 1
name: leaf-burn-in
jobs:
  - name: mixtral
    trace: {path: traces/mixtral, bytes_per_element: 2}
    compute: {from: roofline, peak: 989 TFLOPS, memory: 3.35 TB/s}
    size_scale: 1/16
fabric:
  kind: external
  defaults: {rate: 100Gbit, mtu: 9000, isolate: namespace}
  hosts:
    - name: h1
      agent: "192.0.2.11:7411"
      ports:
        - {open: "udp:ens1f0", address: 198.18.1.1/24, netns: /run/netns/p0}
        - {open: "udp:ens1f1", address: 198.18.2.1/24, netns: /run/netns/p1}
    - name: h2
      agent: "unix:/run/chakram/h2.sock"
      ports: [{open: "udp:ens1f0", address: 198.18.1.2/24, netns: /run/netns/p0}]
  tls: {ca: certs/ca.pem, cert: certs/controller.pem, key: certs/controller.key}
"""


EXTERNAL_IPV6 = re.sub(
    r"198\.18\.([0-9])\.([0-9])/24", r"'2001:2:0:\1::\2/64'", EXTERNAL
)


def mistakes_of(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_experiment(text, source="x.yaml")
    return str(caught.value)
