"""Laws of ideals: the quick way finds what the plain one does; credits only cost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from chakram.collectives.algorithms import algorithm, algorithm_names
from chakram.collectives.ops import ROOTED, CollectiveOp
from chakram.collectives.schedule import transfer_bytes
from chakram.collectives.schedule_check import build_schedule
from chakram.predict.ideal import Ideals, schedule_needs
from chakram.predict.network_model import FabricModel, PathModel, PortModel
from tests.plain_ideal import plain_ideal_ns

RATES = st.sampled_from([None, 10**9, 400 * 10**9, 999_999_937])


@st.composite
def fabrics(draw: st.DrawFn, nranks: int) -> FabricModel:
    nports = draw(st.integers(1, nranks))
    switches = draw(st.lists(st.sampled_from("ab"), min_size=nports, max_size=nports))
    ports = tuple(PortModel(rate_bps=draw(RATES), switch=each) for each in switches)
    uplinks = {switch: draw(RATES) for switch in "ab"}
    delay_ns = draw(st.integers(0, 2000))

    def path(src: int, dst: int) -> PathModel:
        rates = [ports[src].rate_bps, ports[dst].rate_bps]
        if switches[src] != switches[dst]:
            rates.insert(1, uplinks["a"])
        return PathModel(delay_ns=delay_ns + src, rates_bps=tuple(rates))

    ranks = st.integers(0, nranks - 1)
    pairs = draw(st.lists(st.tuples(ranks, ranks), max_size=6))
    port_of = {rank: draw(st.integers(0, nports - 1)) for rank in range(nranks)}
    return FabricModel(
        port_of=port_of,
        ports=ports,
        uplinks_bps=uplinks,
        path=path,
        local_bps={pair: draw(st.sampled_from([0, 10**9])) for pair in pairs},
    )


SIZES = st.one_of(st.just(0), st.integers(0, 5000), st.integers(0, 2**33))


@given(st.data())
@settings(deadline=None)
def test_the_quick_ideal_is_the_plain_one(data: st.DataObject) -> None:
    nranks = data.draw(st.integers(2, 7))
    fabric = data.draw(fabrics(nranks))
    order = data.draw(st.permutations(range(nranks)))
    ideals = Ideals(fabric, path_mtu=1024)
    # Several of one job, so that what is kept serves the next ones.
    for _ in range(data.draw(st.integers(1, 3))):
        op = data.draw(st.sampled_from(CollectiveOp))
        how = algorithm(op, data.draw(st.sampled_from(algorithm_names(op))))
        matrix = None
        if op is CollectiveOp.ALL_TO_ALL_V:
            row = st.tuples(*[SIZES] * nranks)
            matrix = data.draw(st.tuples(*[row] * nranks))
        root = data.draw(st.integers(0, nranks - 1)) if op in ROOTED else 0
        size = data.draw(SIZES)
        found = ideals.collective_ns(
            how, ranks=order, root=root, input_bytes=size, matrix=matrix
        )
        plain = plain_ideal_ns(
            how,
            ranks=order,
            root=root,
            input_bytes=size,
            fabric=fabric,
            path_mtu=1024,
            matrix=matrix,
        )
        transfers = build_schedule(how, nranks=nranks, root=root).transfers
        if matrix is not None:
            transfers = tuple(each for each in transfers if matrix[each.src][each.dst])
        missing, _ = schedule_needs(transfers, stepwise=how.stepwise)
        if any(missing):
            assert found == plain
            continue
        # What is ready at once shares its ports: never slower than one by one.
        assert found <= plain
        for each in transfers:
            size_bytes = (
                transfer_bytes(how, each, nranks=nranks, input_bytes=size)
                if matrix is None
                else matrix[each.src][each.dst]
            )
            assert found >= ideals.message_ns(
                src=order[each.src], dst=order[each.dst], size_bytes=size_bytes
            )


@given(st.data(), st.integers(1, 8))
@settings(deadline=None)
def test_credits_end_a_collective_and_many_cost_nothing(
    data: st.DataObject, credits: int
) -> None:
    nranks = data.draw(st.integers(2, 7))
    fabric = data.draw(fabrics(nranks))
    op = data.draw(st.sampled_from(CollectiveOp))
    if op is CollectiveOp.ALL_TO_ALL_V:
        return
    how = algorithm(op, data.draw(st.sampled_from(algorithm_names(op))))
    size = data.draw(SIZES)

    def found(credits: int) -> int:
        ideals = Ideals(fabric, path_mtu=1024, credits=credits)
        return ideals.collective_ns(how, ranks=range(nranks), root=0, input_bytes=size)

    assert found(1 << 20) == found(0)
    if found(0):
        assert found(credits) > 0
