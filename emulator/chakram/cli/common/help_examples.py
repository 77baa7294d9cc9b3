"""Examples at the end of every ``--help``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "chakram run configs/quickstart.yaml",
        "chakram simulate configs/incast.yaml --set jobs[0].trace.size=64K",
        "chakram show runs/20260131T101500Z-quickstart",
    ),
    "init": (
        "chakram init",
        "chakram init moe-mix --out mine.yaml",
        "chakram init --list",
        "chakram init --examples chakram-examples",
    ),
    "run": (
        "chakram run configs/quickstart.yaml",
        "chakram run configs/incast.yaml --set fabric.links.host.rate=1G --wide",
        "chakram run configs/quickstart.yaml --metrics 127.0.0.1:9464",
        "chakram run configs/two-jobs.yaml --interference",
        "chakram run configs/quickstart.yaml --lab lab1 --set transport.window=128KiB",
        "chakram run configs/quickstart-small.yaml --json > result.json",
        "chakram run moe.yaml --hosts hosts.yaml --launch ssh",
    ),
    "simulate": (
        "chakram simulate configs/quickstart.yaml",
        "chakram simulate configs/incast.yaml --set jobs[0].trace.fan_in=3",
        "chakram simulate configs/two-jobs.yaml --alone training",
        "chakram simulate configs/quickstart.yaml --level message",
        "chakram simulate configs/quickstart.yaml --level flow",
        "chakram simulate configs/quickstart.yaml --against astra-sim/log.log",
    ),
    "show": (
        "chakram show runs/20260131T101500Z-quickstart",
        "chakram show runs/20260131T101500Z-quickstart --wide",
        "chakram show runs/20260131T101500Z-quickstart --queue-pairs > pairs.csv",
    ),
    "logs": (
        "chakram logs runs/20260131T101500Z-quickstart",
        "chakram logs runs/20260131T101500Z-quickstart gpu001",
    ),
    "why": (
        "chakram why runs/20260131T101500Z-quickstart",
        "chakram why runs/20260131T101500Z-quickstart --until world#0 --json",
    ),
    "validate": (
        "chakram validate runs/20260131T101500Z-quickstart",
        "chakram validate runs/20260131T101500Z-quickstart --json",
    ),
    "runs": ("chakram runs", "chakram runs sweeps/sizes/runs --json"),
    "bench": (
        "chakram bench all_reduce_perf -b 1M -e 64M -f 2 --world simulate",
        "chakram bench alltoall_perf -b 8 -e 1M -f 2 -n 5 -J alltoall.json",
        "chakram bench all_reduce_perf --algorithm tree --experiment mine.yaml "
        "-b 64K -e 256K -f 2 -g 4",
    ),
    "sweep": (
        "chakram sweep suite.yaml --jobs 4",
        "chakram sweep suite.yaml --list",
        "chakram sweep suite.yaml --shard 1/8 --out part1",
        "chakram sweep suite.yaml --merge part1 --merge part2 --out all",
    ),
    "compare": (
        "chakram compare runs/20260131T101500Z-quickstart runs/20260131T102500Z-mine",
        "chakram compare before after --all",
        "chakram compare runs/20260131T101500Z-quickstart all_reduce_perf.txt --json",
    ),
    "diff": (
        "chakram diff runs/20260131T101500Z-quickstart runs/20260131T102500Z-mine",
        "chakram diff configs/quickstart.yaml configs/quickstart-small.yaml",
    ),
    "gate": (
        "chakram gate runs/20260131T101500Z-quickstart rules.yaml",
        "chakram gate result.json rules.yaml --baseline baseline.json "
        "--junit gate.xml --markdown gate.md",
    ),
    "report": (
        "chakram report runs/20260131T101500Z-quickstart",
        "chakram report runs/A runs/B --out comparison.html",
        "chakram report runs/A --bmwg --figures figures --force",
        "chakram report sweeps/algorithms --out sweep.html",
    ),
    "timeline": ("chakram timeline runs/20260131T101500Z-quickstart",),
    "export": (
        "chakram export fct runs/20260131T101500Z-quickstart --out exported",
        "chakram export p2p configs/incast.yaml --out exported",
    ),
    "export astra-sim": (
        "chakram export astra-sim configs/quickstart.yaml --out astra",
    ),
    "export fct": (
        "chakram export fct runs/20260131T101500Z-quickstart --out exported",
    ),
    "export pfc": (
        "chakram export pfc configs/incast.yaml --set fabric.switch=model "
        "--set fabric.switches.profile=ns3 --set records.sample_bin=1us --out exported",
    ),
    "export qlen": (
        "chakram export qlen configs/incast.yaml --set records.sample_bin=100us "
        "--out exported",
    ),
    "export p2p": (
        "chakram export p2p runs/20260131T101500Z-quickstart --out exported",
        "chakram export p2p configs/incast.yaml --set seed=2 --out exported",
    ),
    "export links": (
        "chakram export links runs/20260131T101500Z-quickstart --out exported",
    ),
    "export nccl-tests": (
        "chakram export nccl-tests runs/20260131T101500Z-quickstart --out exported",
    ),
    "export openmetrics": (
        "chakram export openmetrics runs/20260131T101500Z-quickstart --out exported",
        "chakram export openmetrics configs/incast.yaml --step 1ms --out exported",
    ),
    "interference": ("chakram interference runs/TOGETHER runs/ALONE-1 runs/ALONE-2",),
    "plan": (
        "chakram plan configs/quickstart.yaml",
        "chakram plan configs/dense-3d.yaml --save dense.plan",
    ),
    "preflight": (
        "chakram preflight configs/single-switch.yaml",
        "chakram preflight configs/external.yaml --json > preflight.json",
    ),
    "dcqcn": (
        "chakram dcqcn dcqcn-nvidia --rate 400G",
        "chakram dcqcn dcqcn-paper --scaled-from 40Gbit --rate 25gbit",
        "chakram dcqcn --set min_rate=0.5% --as mlx5",
    ),
    "hosts": (
        "chakram hosts find 'gpu[001-064]' --port-in 198.18.0.0/15 --certs certs",
    ),
    "hosts find": (
        "chakram hosts find 'gpu[001-064]' --port-in 198.18.0.0/15 --certs certs",
        "chakram hosts find hostfile --interface 'ens*np0' --certs certs > hosts.yaml",
        "chakram hosts find inventory.json --group gpu --port-in 198.18.0.0/15",
        "chakram hosts find 'gpu[001-064]' --launch ssh --port-in 198.18.0.0/15",
    ),
    "hosts push": (
        "chakram hosts push 'gpu[001-064]'",
        "chakram hosts push hosts.yaml --python cpython-3.11-install_only.tar.gz",
        "chakram hosts push --save chakram-agent.tar.gz",
    ),
    "launch": (
        "chakram launch show ssh 'gpu[001-064]'",
        "chakram launch sbatch moe.yaml --nodes 8 --port-in 198.18.0.0/15",
    ),
    "launch show": (
        "chakram launch show ssh 'gpu[001-064]'",
        "chakram launch show mpi hosts.yaml --agent /opt/chakram/bin/chakram-agent",
    ),
    "launch sbatch": (
        "chakram launch sbatch moe.yaml --nodes 8 --port-in 198.18.0.0/15",
        "chakram launch sbatch moe.yaml --nodes 8 --port-in 198.18.0.0/15 "
        "--directive=--partition=gpu",
    ),
    "launch systemd": (
        "chakram launch systemd --max-rate 50Gbit > chakram-agent.service",
    ),
    "launch ansible": ("chakram launch ansible > playbook.yaml",),
    "launch kubernetes": (
        "chakram launch kubernetes moe.yaml --nodes 8 --port-in 198.18.0.0/15 "
        "--image registry.example/chakram:0.2.0 --claim chakram | kubectl apply -f -",
    ),
    "hosts show": (
        "chakram hosts show hosts.yaml",
        "chakram hosts show hosts.yaml --metrics-port 9465 > targets/agents.json",
    ),
    "hosts check": (
        "chakram hosts check hosts.yaml",
        "chakram hosts check hosts.yaml --launch ssh",
    ),
    "certs": (
        "chakram certs configs/external.yaml",
        "chakram certs --agent h1=192.0.2.11 --agent h2=192.0.2.12,h2.lab",
    ),
    "dashboards": ("chakram dashboards export monitoring",),
    "dashboards export": (
        "chakram dashboards export monitoring",
        "chakram dashboards export monitoring --force",
    ),
    "bug-report": (
        "chakram bug-report runs/20260131T101500Z-quickstart",
        "chakram bug-report --out -",
    ),
    "serve": (
        "chakram serve --resources lab",
        "chakram serve --tokens users.txt --add-user alice --role run",
        "chakram serve --listen 192.0.2.1:8642 --cert a.pem --key a.key "
        "--tokens users.txt",
    ),
    "completion": (
        "chakram completion bash > ~/.local/share/bash-completion/completions/chakram",
        "chakram completion zsh > ~/.zfunc/_chakram",
        "chakram completion fish > ~/.config/fish/completions/chakram.fish",
    ),
    "doctor": (
        "chakram doctor",
        "chakram doctor --json",
        "chakram doctor --nic mlx5_0",
    ),
    "trace": (
        "chakram trace show traces/mixtral",
        "chakram trace lint traces/mixtral --strict",
    ),
    "trace show": (
        "chakram trace show traces/mixtral",
        "chakram trace show traces.tar.gz/mixtral --html mixtral.html",
    ),
    "trace lint": (
        "chakram trace lint traces/mixtral",
        "chakram trace lint traces/stage --bytes-per-element 2 --strict",
    ),
    "trace cut": (
        "chakram trace cut traces/mixtral small --ranks 0-3",
        "chakram trace cut traces/mixtral shared --communication-only --anonymize",
    ),
    "trace convert": (
        "chakram trace convert json traces/mixtral readable",
        "chakram trace convert p2p traces/mixtral messages.csv",
    ),
    "trace convert json": ("chakram trace convert json traces/mixtral readable",),
    "trace convert et": ("chakram trace convert et traces/json binary --gzip",),
    "trace convert p2p": (
        "chakram trace convert p2p traces/mixtral messages.csv.gz",
        "chakram trace convert p2p traces/mixtral ring.csv --algorithm all_reduce=ring",
    ),
    "trace convert collective": (
        "chakram trace convert collective --op all_reduce --ranks 8 --size 1M ring8",
    ),
    "trace synth": ("chakram trace synth moe --ranks 8 --ep 4 --out moe",),
    "trace synth moe": (
        "chakram trace synth moe --ranks 8 --ep 4 --out moe",
        "chakram trace synth moe --model mixtral-8x7b --ranks 64 --ep 8 --out mixtral",
    ),
    "trace synth dense": (
        "chakram trace synth dense --ranks 8 --tp 2 --pp 2 --out dense",
        "chakram trace synth dense --model llama-3-8b --ranks 64 --tp 8 --out llama",
    ),
    "trace synth inference": (
        "chakram trace synth inference --model llama-3-8b --tp 8 --out serve",
    ),
    "trace synth kv-cache": (
        "chakram trace synth kv-cache --model llama-3-8b --out kv-cache",
    ),
    "trace synth collectives": (
        "chakram trace synth collectives --ranks 8 --stream "
        "'{op: all_reduce, size: 64M, count: 10, members: 8}' --out streams",
    ),
    "trace synth incast": (
        "chakram trace synth incast --ranks 8 --fan-in 7 --size 256K --out incast",
    ),
    "trace synth permutation": (
        "chakram trace synth permutation --ranks 16 --size 1M --repeats 10 --out shift",
    ),
    "trace synth all-to-all": (
        "chakram trace synth all-to-all --ranks 8 --size 64K --out mesh",
    ),
    "trace synth one-to-all": (
        "chakram trace synth one-to-all --ranks 8 --size 1M --out fan-out",
    ),
    "trace synth random-pairs": (
        "chakram trace synth random-pairs --ranks 16 --size 64K --out random",
    ),
    "fabric": (
        "chakram fabric up configs/quickstart.yaml --lab lab1",
        "chakram fabric status",
        "chakram fabric down lab1",
    ),
    "fabric up": ("chakram fabric up configs/quickstart.yaml --lab lab1",),
    "fabric show": (
        "chakram fabric show configs/fat-tree.yaml",
        "chakram fabric show configs/fat-tree.yaml --out fat-tree.html",
        "chakram fabric show configs/fat-tree.yaml --infragraph > fat-tree.infra.yaml",
    ),
    "fabric convert": (
        "chakram fabric convert fat-tree.infra.yaml",
        "chakram fabric convert config_db.json",
    ),
    "fabric down": ("chakram fabric down lab1", "chakram fabric down --all"),
    "fabric status": ("chakram fabric status", "chakram fabric status --json"),
    "algorithms": (
        "chakram algorithms list --op all_reduce",
        "chakram algorithms show ring --op all_reduce --size 1G --rate 400G",
    ),
    "algorithms list": (
        "chakram algorithms list",
        "chakram algorithms list --op all_reduce",
    ),
    "algorithms show": (
        "chakram algorithms show ring --op all_reduce --ranks 4",
        "chakram algorithms show tree --op all_reduce --size 1G --rate 400G",
    ),
    "algorithms check": (
        "chakram algorithms check mine.xml",
        "chakram algorithms check mine.py:schedule --op all_reduce --ranks 8",
    ),
}
"""Example commands by verb."""


def examples_text(verb: str) -> str:
    """Return the examples for the help of *verb*, or of ``chakram`` if it is empty."""
    # \b makes click keep the lines as they are.
    return "\n".join(["\b", "Examples:", *(f"  {each}" for each in EXAMPLES[verb])])


def add_examples(app: typer.Typer, verb: str = "") -> None:
    """Add the examples to the help of *app* and of all verbs below it.

    Args:
        app: The command, or a group of verbs.
        verb: Full name of the group, e.g. ``trace convert``. Empty for ``chakram``.
    """
    app.info.epilog = examples_text(verb)
    for command in app.registered_commands:
        callback = command.callback
        assert callback is not None, "typer registers no verb without a function"
        name = command.name or callback.__name__.replace("_", "-")
        command.epilog = examples_text(f"{verb} {name}".strip())
    for group in app.registered_groups:
        inner = group.typer_instance
        assert inner is not None, "add_typer was given one"
        add_examples(inner, f"{verb} {inner.info.name}".strip())
