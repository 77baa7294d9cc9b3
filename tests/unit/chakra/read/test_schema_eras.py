"""Recognition of schema versions by raw bytes."""

from __future__ import annotations

import pytest

from chakram.chakra.read.eras import (
    FirstRecord,
    NodeEra,
    classify_first_record,
    era_of_node,
    old_schema_of_metadata,
)

NAME = b"\x12\x01n"


@pytest.mark.parametrize(
    "body",
    [b"", b"\n\x050.0.4", b"\x12\x00", b"\n\x050.0.4\x12\x03\n\x01a"],
    ids=["empty", "version", "attribute", "both"],
)
def test_fields_1_and_2_of_bytes_are_metadata(body: bytes) -> None:
    assert classify_first_record(body) is FirstRecord.METADATA


@pytest.mark.parametrize("body", [b"\x08\x01", NAME + b"\x18\x04", b"\x08\x01" + NAME])
def test_a_number_in_field_1_or_3_is_a_node(body: bytes) -> None:
    assert classify_first_record(body) is FirstRecord.NODE


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\x00",  # field 0
        b"\x0f",  # wire type 7
        b"\x12\x05ab",  # longer than the message
        b"\x08",  # a number that is missing
        b"\x08" + b"\xff" * 11,  # a number without end
        b"\x22\x01a",  # field 4 alone
        b"\x09" + b"\0" * 8 + b"\x0d" + b"\0" * 4,  # fixed 64 and 32 bits
    ],
)
def test_other_fields_are_neither_metadata_nor_node(body: bytes) -> None:
    assert classify_first_record(body) is FirstRecord.NEITHER


def test_an_attribute_in_the_place_of_the_version_is_old() -> None:
    assert old_schema_of_metadata(b"\n\x08\n\x06schema") == "0.0.3"
    assert old_schema_of_metadata(b"\n\x050.0.4") is None


@pytest.mark.parametrize(
    ("body", "era"),
    [
        (b"\x08\x00" + NAME, NodeEra.OLD),  # a zero spelt out
        (b"\x08\x00" + NAME + b"\x18\x03\x38\x05", NodeEra.FIRST),  # and a run time
        (b"\x08\x01\x18\x04\x20\x00", NodeEra.OLD),  # an unpacked parent
        (b"\x08\x01\x18\x03\x60\x05", NodeEra.FIRST),  # field 12 is a number
        (b"\x08\x01\x18\x06\x70\x01\x70\x00", NodeEra.FIRST),  # involved_dim
        (b"\x08\x01\x18\x06\x72\x02\x01\x00", NodeEra.FIRST),  # and packed
        (b"\x08\x01\x18\x04\x5a\x03\n\x01a", NodeEra.SECOND),  # attribute in 11
        (b"\x08\x01\x18\x04\x2a\x02[]\x52\x02[]", NodeEra.UNKNOWN),  # texts
        (b"\x08\x01\x18\x04\x2a\x02[]\x32\x02[]", NodeEra.SECOND),  # of shapes
        (b"\x08\x01" + NAME + b"\x18\x03\x38\x05", NodeEra.UNKNOWN),
        (b"\x08\x01\x22\x01\x02", NodeEra.TODAY),  # packed control dependencies
        (b"\x08\x01\x2a\x01\x02", NodeEra.TODAY),  # packed data dependencies
        (b"\x08\x01\x52\x03\n\x01a", NodeEra.TODAY),  # attribute in 10
        (b"\x08\x01\x42\x03\n\x01a", NodeEra.TODAY),  # inputs as a message
    ],
)
def test_node_schema_is_recognized_by_its_unique_fields(
    body: bytes, era: NodeEra
) -> None:
    assert era_of_node(body, has_metadata=False) is era
    assert era.is_old == (era not in (NodeEra.TODAY, NodeEra.UNKNOWN))


def test_behind_metadata_an_unusual_writer_is_not_old() -> None:
    assert era_of_node(b"\x08\x00\x20\x00", has_metadata=True) is NodeEra.UNKNOWN
    assert era_of_node(b"\x18\x04\x60\x05", has_metadata=True) is NodeEra.UNKNOWN


def test_storage_of_today_in_field_11_is_not_old() -> None:
    storage = b"\x18\x08\x5a\x02\x08\x01"
    assert era_of_node(storage, has_metadata=True) is NodeEra.UNKNOWN


def test_undecodable_bytes_are_left_to_the_decoder() -> None:
    assert era_of_node(b"\x0f", has_metadata=False) is NodeEra.UNKNOWN
