"""Records: what is packed is unpacked, and any change of any byte is seen."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.log.record import (
    HEADER_BYTES,
    MAGIC,
    TYPES_BYTES,
    Record,
    is_intact,
    pack,
    types_of,
    unpack,
    unpack_head,
)

FAST = settings(max_examples=150, deadline=None)
kinds = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=9)
records = st.builds(
    Record,
    st.just("ses_a"),
    st.integers(1, 2**53 - 1),
    st.integers(1, 2**53 - 1),
    st.integers(1, 2**31),
    st.floats(0, 1e11),
    st.frozensets(kinds, min_size=1, max_size=4),
    st.binary(max_size=50),
    st.binary(max_size=200),
)


@FAST
@given(records, st.binary(max_size=20))
def test_a_record_comes_back_as_it_was(record: Record, behind: bytes) -> None:
    data = b"".join(pack(record)) + behind
    head = unpack_head(b"xx" + data, 2)
    assert head is not None
    assert unpack_head(data) == head
    assert is_intact(head, data)
    assert unpack("ses_a", head, data) == record
    assert (head.last_seq, head.last_id) == (record.last_seq, record.last_id)
    assert head.size + len(behind) == len(data)
    assert head.body_bytes == record.body_bytes
    assert data[head.body_offset : head.size] == record.body


@FAST
@given(records, st.data())
def test_a_change_anywhere_or_an_end_too_soon_is_seen(record: Record, data: st.DataObject) -> None:
    good = b"".join(pack(record))
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(bad), good[:at]):
        head = unpack_head(damaged)
        assert head is None or not is_intact(head, damaged)


def test_types_that_take_too_much_are_not_said() -> None:
    types = frozenset({"x" * TYPES_BYTES, "y"})
    data = b"".join(pack(Record("s", 1, 1, 1, 0.0, types, b"m", b"body")))
    head = unpack_head(data)
    assert head is not None
    assert types_of(head, data) == frozenset()
    assert unpack("s", head, data).body == b"body"


def test_text_is_no_header() -> None:
    for letter in b"\t\n !Az~":
        assert unpack_head(MAGIC + bytes([letter]) * HEADER_BYTES) is None
    assert unpack_head(bytes(HEADER_BYTES)) is None
    assert unpack_head(MAGIC) is None
