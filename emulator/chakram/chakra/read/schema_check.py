"""Refuse files that have, or may have, an old schema.

Reading such a file with the current schema gives wrong nodes instead of an error (see
``chakram.chakra.read.eras``).
"""

from __future__ import annotations

from chakram.chakra.read.eras import NodeEra, era_of_node, old_schema_of_metadata
from chakram.foundation.errors import UnsupportedTrace

_ERA_LOOK = 64
"""Number of nodes at the start of a file that are checked for an old schema."""

_REMEDY = "convert it with the tool that wrote it to schema 0.0.4 or later"


class SchemaCheck:
    """Schema check for the records of one file, which are passed in order.

    Args:
        source: Name of the file, for error messages.

    Attributes:
        is_current: Whether metadata or a node showed that the schema is current.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._has_metadata = False
        self._nodes = 0
        self.is_current = False

    def take_metadata(self, offset: int, body: bytes) -> None:
        """Take the metadata record.

        Raises:
            UnsupportedTrace: If it has an old schema.
        """
        self._refuse_old(offset, old_schema_of_metadata(body))
        self._has_metadata = True
        self.is_current = bool(body)

    def take_node(self, offset: int, body: bytes) -> None:
        """Take the next node. Only the first nodes of a file are examined.

        Raises:
            UnsupportedTrace: If it has an old schema, or if no node so far shows the
                current schema.
        """
        self._nodes += 1
        if self._nodes > _ERA_LOOK:
            return
        era = era_of_node(body, has_metadata=self.is_current)
        if era.is_old:
            self._refuse_old(offset, era.value)
        self.is_current = self.is_current or era is NodeEra.TODAY
        if self._nodes == _ERA_LOOK:
            self.refuse_unknown(offset)

    def finish(self) -> None:
        """Refuse the file if it has nodes, but none shows the current schema.

        Raises:
            UnsupportedTrace: If no record shows that the schema is current.
        """
        if self._nodes:
            self.refuse_unknown(0)

    def refuse_unknown(self, offset: int) -> None:
        """Refuse the file unless something shows that its schema is current.

        Raises:
            UnsupportedTrace: At *offset*, if nothing shows a current schema.
        """
        # Even empty metadata shows that the node types have the current numbers.
        if not self._has_metadata and not self.is_current:
            raise UnsupportedTrace(
                f"{self._source}: offset {offset}",
                "there is no metadata record, and no node shows that the file uses "
                "Chakra schema 0.0.4 or later; older schemas number node types "
                "differently",
                _REMEDY,
            )

    def _refuse_old(self, offset: int, schema: str | None) -> None:
        if schema is not None:
            raise UnsupportedTrace(
                f"{self._source}: offset {offset}",
                f"the file has Chakra schema {schema}; in the current schema, its "
                "nodes have other types",
                _REMEDY,
            )
