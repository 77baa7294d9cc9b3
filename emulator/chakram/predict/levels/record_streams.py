# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False, cdivision=True
"""Streams of records in ascending order, and their merge.

A record has six numbers of 32 bits in three words. They are the times of a message at
the routers of its path, latest first, and the number of the message. Absent times are
0. Records take 24 bytes each, because there may be hundreds of millions of them.
"""

from __future__ import annotations

from array import array

from chakram.predict.levels import row_offsets
from chakram.predict.levels.row_offsets import large_array

__all__ = ["MOST_TIMES", "RecordStreams"]

MOST_TIMES = 5
"""Number of times in a record."""

_NONE = row_offsets.NONE
_MASK = (1 << 32) - 1
_OVER = (1 << 64) - 1
"""First word of the record that represents the end of a stream."""

_RECORD = 3
_BLOCK_BITS = 6
_BLOCK = 1 << _BLOCK_BITS
"""Number of records in a block. A stream is a linked list of blocks."""

# Streams: index of the first record, index after the last record, and number of
# records.
_FIRST = 0
_UNTIL = 1
_COUNT = 2
_STREAM = 3


class RecordStreams:
    """Streams of records, and one merge of selected streams at a time.

    Args:
        streams: Number of streams.
        records: Maximum number of records in all streams together.

    Attributes:
        one: First word of the first record of the merge. After the end of the merge,
            the time in its upper half is later than all other times.
        two: Second word of that record.
        three: Third word of that record.
    """

    def __init__(self, streams: int, records: int) -> None:
        blocks = records // _BLOCK + 2 * streams + 1
        self._records = large_array("Q", _RECORD * _BLOCK * blocks)
        # For each block, the next block of its stream or of the list of free blocks.
        self._next = array("q", bytes(8 * blocks))
        self._streams = array("q", bytes(8 * _STREAM * streams))
        # For each place of the merge, its stream and the first record of the stream.
        self._stream_of = array("q", bytes(8 * (streams + 1)))
        self._heads = array("Q", bytes(8 * _RECORD * (streams + 1)))
        # A loser tree: each node contains the place that lost the comparison at this
        # node. Node 0 contains the place of the first record.
        self._losers = array("q", bytes(8 * (streams + 1)))
        self._by_entry = False
        self.clear()

    def clear(self) -> None:
        """Remove all records."""
        self._places = 0
        self._free = _NONE
        self._used = 0
        for at in range(len(self._streams)):
            self._streams[at] = 0

    def count(self, stream: int) -> int:
        """Return the number of records of a stream."""
        return self._streams[stream * _STREAM + _COUNT]

    def append(self, stream: int, one: int, two: int, three: int) -> None:
        """Append a record, which must follow all other records of the stream."""
        row = stream * _STREAM
        at = self._streams[row + _UNTIL]
        if at & (_BLOCK - 1) == 0:
            block = self._free
            if block == _NONE:
                block = self._used
                self._used += 1
            else:
                self._free = self._next[block]
            if at == 0:
                self._streams[row + _FIRST] = block << _BLOCK_BITS
            else:
                self._next[(at - 1) >> _BLOCK_BITS] = block
            at = block << _BLOCK_BITS
        self._streams[row + _UNTIL] = at + 1
        self._streams[row + _COUNT] += 1
        at *= _RECORD
        self._records[at] = one
        self._records[at + 1] = two
        self._records[at + 2] = three

    # ---- merge -----------------------------------------------------------------------

    def join(self, stream: int) -> None:
        """Add a stream to the next merge, unless it is empty."""
        if self._streams[stream * _STREAM + _COUNT]:
            self._stream_of[self._places] = stream
            self._places += 1

    def merge(self, by_entry: bool = False) -> None:
        """Begin to merge the streams that joined.

        If *by_entry* is true, the merge ignores the latest time of each record. Records
        of links are then in the order in which their messages entered the links.
        """
        self._by_entry = by_entry
        for node in range(self._places + 1):
            self._losers[node] = _NONE
        for place in range(self._places):
            self._load(place)
            top = place
            node = (place + self._places) >> 1
            while node > 0 and self._losers[node] != _NONE:
                top = self._play(node, top)
                node >>= 1
            self._losers[node] = top
        self._show()

    def stop(self) -> None:
        """End the merge."""
        self._places = 0

    def stream(self) -> int:
        """Return the stream of the first record."""
        return self._stream_of[self._losers[0]]

    def latest(self) -> int:
        """Return the latest time of the first record."""
        row = self._stream_of[self._losers[0]] * _STREAM
        return self._records[self._streams[row + _FIRST] * _RECORD] >> 32

    def advance(self) -> None:
        """Remove the first record."""
        top = self._losers[0]
        row = self._stream_of[top] * _STREAM
        at = self._streams[row + _FIRST]
        self._streams[row + _FIRST] = at + 1
        self._streams[row + _COUNT] -= 1
        if self._streams[row + _COUNT] == 0 or (at + 1) & (_BLOCK - 1) == 0:
            block = at >> _BLOCK_BITS
            if self._streams[row + _COUNT]:
                self._streams[row + _FIRST] = self._next[block] << _BLOCK_BITS
            else:
                self._streams[row + _UNTIL] = 0
            self._next[block] = self._free
            self._free = block
        self._load(top)
        node = (top + self._places) >> 1
        while node > 0:
            top = self._play(node, top)
            node >>= 1
        self._losers[0] = top
        self._show()

    def _show(self) -> None:
        """Set the words of the first record."""
        if self._places == 0:
            self.one = _OVER
            return
        at = self._losers[0] * _RECORD
        self.one = self._heads[at]
        self.two = self._heads[at + 1]
        self.three = self._heads[at + 2]

    def _play(self, node: int, place: int) -> int:
        """Compare a place with the loser of a node, and return the winner."""
        other = self._losers[node]
        one = other * _RECORD
        two = place * _RECORD
        if self._heads[one] == self._heads[two]:
            one += 1
            two += 1
            if self._heads[one] == self._heads[two]:
                one += 1
                two += 1
        if self._heads[one] < self._heads[two]:
            self._losers[node] = place
            return other
        return place

    def _load(self, place: int) -> None:
        """Load the first record of a stream."""
        stream = self._stream_of[place] * _STREAM
        head = place * _RECORD
        if self._streams[stream + _COUNT] == 0:
            self._heads[head] = _OVER
            return
        at = self._streams[stream + _FIRST] * _RECORD
        one = self._records[at]
        two = self._records[at + 1]
        three = self._records[at + 2]
        if self._by_entry:
            one = (one & _MASK) << 32 | two >> 32
            two = (two & _MASK) << 32 | three >> 32
            three &= _MASK
        self._heads[head] = one
        self._heads[head + 1] = two
        self._heads[head + 2] = three
