"""Reader of the configuration of a SONiC switch, ``config_db.json``.

It converts buffers, WRED, queues, DSCPs, priority flow control and its watchdog to
settings of the model, and ignores all other tables and fields. In the model, the
traffic class, queue, priority group and priority of a lossless class have the same
number, as in SONiC's own templates. The reader rejects configurations with other
mappings.

Source: the schema of SONiC's CONFIG_DB (sonic-swss, ``doc/swss-schema.md``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chakram.foundation.bounded_reading import parse_json
from chakram.foundation.errors import ConfigError
from chakram.switch.headroom import LinkEnd, headroom_bytes
from chakram.switch.settings import (
    CLASSES,
    NO_LIMIT_BYTES,
    BufferLimit,
    PauseSettings,
    PoolSettings,
    PortSettings,
    SwitchSettings,
    WatchdogSettings,
    WredSettings,
)

CONFIG_DB = "config_db.json"

NO_LIMIT_POOL = "no limit"
"""Pool of the classes that have no buffer profile."""

_USED: Mapping[str, tuple[str, ...]] = {
    "PORT": ("lanes",),
    "BUFFER_POOL": ("size", "xoff"),
    "BUFFER_PROFILE": (
        *("pool", "size", "xon", "xoff", "xon_offset", "dynamic_th", "static_th"),
    ),
    "BUFFER_PG": ("profile",),
    "BUFFER_QUEUE": ("profile",),
    "QUEUE": ("scheduler", "wred_profile"),
    "SCHEDULER": ("type", "weight"),
    "WRED_PROFILE": (
        *("ecn", "wred_green_enable", "green_min_threshold", "green_max_threshold"),
        "green_drop_probability",
    ),
    "PORT_QOS_MAP": (
        *("pfc_enable", "dscp_to_tc_map", "tc_to_queue_map", "tc_to_pg_map"),
        *("pfc_to_pg_map", "pfc_to_queue_map"),
    ),
    "DSCP_TO_TC_MAP": (),
    "TC_TO_QUEUE_MAP": (),
    "TC_TO_PRIORITY_GROUP_MAP": (),
    "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP": (),
    "MAP_PFC_PRIORITY_TO_QUEUE": (),
    "PFC_WD": ("detection_time", "restoration_time", "action", "POLL_INTERVAL"),
}
"""Fields that the model uses, by table. The model uses all fields of a map."""

_MARKS_GREEN = ("ecn_green", "ecn_green_yellow", "ecn_green_red", "ecn_all")
_MOST_MS = 10**9
_WATCHDOG_TIMES = ("detection_time", "restoration_time", "POLL_INTERVAL")
_MTU = 9216
_MS_NS = 10**6
_POLL_MS = 100
_MAX_PORTS = 1024
_PROBABILITY = 100  # maximum WRED probability, in percent


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigTables:
    """The tables of a SONiC switch.

    Attributes:
        used: Tables, rows and fields that the model uses.
        unused: Descriptions of the other tables, rows and fields.
    """

    used: Mapping[str, Mapping[str, Any]]
    unused: tuple[str, ...]


def is_config_db(data: bytes) -> bool:
    """Return whether a document is a JSON object with the tables of a switch."""
    try:
        tables = parse_config_db(data, where="")
    except ConfigError:
        return False
    return not {"DEVICE_METADATA", *_USED}.isdisjoint(tables)


def parse_config_db(data: bytes, *, where: str) -> Mapping[str, Any]:
    """Return the tables in a ``config_db.json``.

    Raises:
        ConfigError: If the document is not a JSON object.
    """
    hint = f"use the {CONFIG_DB} of a SONiC switch"
    tables = parse_json(data, where, error=ConfigError, hint=hint)
    if not isinstance(tables, dict):
        raise ConfigError(where, "is not a JSON object", hint)
    return tables


def checked_tables(tables: Mapping[str, Any], *, where: str) -> ConfigTables:
    """Check the tables of a switch, and select what the model uses.

    Args:
        tables: The parsed file.
        where: Name of the file, for error messages.

    Raises:
        ConfigError: As in `read_sonic`.
    """
    used: dict[str, dict[str, Any]] = {}
    unused: list[str] = []
    for table, known in _USED.items():
        others: set[str] = set()
        for name in _table(tables, table, where):
            row = _row(tables[table], name, f"{where}: {table}")
            kept = {str(key): row[key] for key in row if not known or key in known}
            used.setdefault(table, {})[str(name)] = kept
            others |= {str(key) for key in row} - kept.keys()
        if others:
            unused.append(f"{table}: {', '.join(sorted(others))}")
    ports = port_names(used, where=where)
    ends = [LinkEnd(rate_bps=None, delay_ns=0)] * len(ports)
    settings = read_sonic(used, ends, where=where)
    unused += [
        f"{table}.{name}: does not belong to a port in PORT"
        for table in ("BUFFER_PG", "BUFFER_QUEUE", "QUEUE")
        for name in used.get(table, ())
        if {*ports}.isdisjoint(name.partition("|")[0].split(","))
    ]
    unused += [
        f"BUFFER_POOL.{name}: has no size, which means no limit"
        for name, row in used.get("BUFFER_POOL", {}).items()
        if "size" not in row
    ]
    unlimited = ", ".join(
        name
        for name, port in zip(ports, settings.ports, strict=True)
        if any(port.ingress[each].pool == NO_LIMIT_POOL for each in port.pause.classes)
    )
    if unlimited:
        unused.append(
            f"BUFFER_PG: has no profile for the lossless classes of {unlimited}, "
            "which therefore never pause"
        )
    unused.sort()
    if tables.keys() - _USED.keys():
        unused.append(f"tables: {', '.join(sorted(tables.keys() - _USED.keys()))}")
    return ConfigTables(used=used, unused=tuple(unused))


def stretched_watchdog(tables: Mapping[str, Any], factor: int) -> dict[str, Any]:
    """Return tables with the watchdog times multiplied by *factor*."""
    if "PFC_WD" not in tables:
        return dict(tables)
    rows = {
        name: {
            key: int(value) * factor
            if key in _WATCHDOG_TIMES and str(value).strip().isdecimal()
            else value
            for key, value in row.items()
        }
        for name, row in {
            "GLOBAL": {"POLL_INTERVAL": _POLL_MS},
            **tables["PFC_WD"],
        }.items()
    }
    return {**tables, "PFC_WD": rows}


def port_names(tables: Mapping[str, Any], *, where: str) -> list[str]:
    """Return the port names of a switch, in the order of their lanes.

    Args:
        tables: The parsed file.
        where: Name of the file, for error messages.

    Raises:
        ConfigError: If there is no port, or there are too many.
    """
    ports = _table(tables, "PORT", where)

    def lane(name: str) -> tuple[int, str]:
        lanes = str(_row(ports, name, f"{where}: PORT").get("lanes", ""))
        first = lanes.split(",")[0].strip()
        return (int(first) if first.isdecimal() else _MAX_PORTS, name)

    names = sorted(ports, key=lane)
    if not names:
        raise ConfigError(where, "has no PORT", "use a config_db.json of a switch")
    if len(names) > _MAX_PORTS:
        raise ConfigError(
            f"{where}: PORT", f"has {len(names)} entries", f"use at most {_MAX_PORTS}"
        )
    return names


def read_sonic(
    tables: Mapping[str, Any], ends: Sequence[LinkEnd], *, where: str
) -> SwitchSettings:
    """Return the settings of a switch whose first ports have these links.

    Args:
        tables: The parsed file.
        ends: Ends of the links, in the order of `port_names`.
        where: Name of the file, for error messages.

    Raises:
        ConfigError: If a value refers to a missing entry, is out of range, or is not
            supported by the model.
    """
    names = port_names(tables, where=where)
    if len(names) < len(ends):
        raise ConfigError(
            f"{where}: PORT",
            f"has {len(names)} entries for {len(ends)} links of the switch",
            "use a configuration of a switch with enough ports",
        )
    reader = _Reader(tables, where)
    ports = tuple(
        reader.port(name, end)
        for name, end in zip(names[: len(ends)], ends, strict=True)
    )
    return SwitchSettings(
        pools=reader.pools(), ports=ports, class_of_dscp=reader.class_of_dscp(names[0])
    )


class _Reader:
    """Converts the tables of one file to settings."""

    def __init__(self, tables: Mapping[str, Any], where: str) -> None:
        self._tables = tables
        self._where = where
        self._pools = {
            name: PoolSettings(
                name=name,
                shared_bytes=self._number(row, "size", at, NO_LIMIT_BYTES),
                headroom_bytes=self._number(row, "xoff", at, 0) or None,
            )
            for name, row, at in self._rows("BUFFER_POOL")
        }
        if NO_LIMIT_POOL in self._pools:
            raise ConfigError(
                f"{where}: BUFFER_POOL",
                f"names a pool {NO_LIMIT_POOL!r}",
                "choose another name",
            )

    def pools(self) -> tuple[PoolSettings, ...]:
        return (*self._pools.values(), PoolSettings(name=NO_LIMIT_POOL))

    def class_of_dscp(self, port: str) -> tuple[int, ...]:
        """Return the class of each DSCP: the queue of its traffic class."""
        to_class = self._map(port, "dscp_to_tc_map", "DSCP_TO_TC_MAP", 64)
        to_queue = self._map(port, "tc_to_queue_map", "TC_TO_QUEUE_MAP", CLASSES)
        return tuple(
            to_queue.get(each, each)
            for each in (to_class.get(dscp, 0) for dscp in range(64))
        )

    def port(self, name: str, end: LinkEnd) -> PortSettings:
        paused = self._paused(name)
        self._check_priorities(name, paused)
        ingress = self._limits("BUFFER_PG", name)
        egress = self._limits("BUFFER_QUEUE", name)
        free = BufferLimit(pool=NO_LIMIT_POOL)
        incoming: list[BufferLimit] = []
        for klass in range(CLASSES):
            limit = ingress.get(klass, free)
            if klass in paused and not limit.headroom_bytes:
                limit = self._with_headroom(limit, end)
            incoming.append(limit)
        return PortSettings(
            ingress=tuple(incoming),
            egress=tuple(egress.get(klass, free) for klass in range(CLASSES)),
            weights=self._weights(name),
            wred=self._wred(name),
            pause=PauseSettings(classes=paused),
            watchdog=self._watchdog(name) if paused else None,
        )

    def _with_headroom(self, limit: BufferLimit, end: LinkEnd) -> BufferLimit:
        """Return a limit with the headroom that its link needs.

        A switch that computes buffers itself omits headroom from the file. A switch
        with shared headroom allows a class to use all of the headroom.
        """
        pool = self._pools.get(limit.pool)
        shared = pool.headroom_bytes if pool is not None else None
        own = shared or headroom_bytes(end, mtu=_MTU)
        return replace(limit, headroom_bytes=own)

    def _paused(self, port: str) -> tuple[int, ...]:
        row, at = self._qos(port)
        text = str(row.get("pfc_enable", "")).strip()
        return tuple(
            sorted(
                self._class(each.strip(), f"{at}.pfc_enable")
                for each in text.split(",")
                if each.strip()
            )
        )

    def _check_priorities(self, port: str, paused: tuple[int, ...]) -> None:
        """Reject maps that give a lossless class different numbers."""
        for key, table in (
            ("tc_to_queue_map", "TC_TO_QUEUE_MAP"),
            ("tc_to_pg_map", "TC_TO_PRIORITY_GROUP_MAP"),
            ("pfc_to_pg_map", "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"),
            ("pfc_to_queue_map", "MAP_PFC_PRIORITY_TO_QUEUE"),
        ):
            mapping = self._map(port, key, table, CLASSES)
            for klass in paused:
                if mapping.get(klass, klass) != klass:
                    raise ConfigError(
                        f"{self._where}: {table}",
                        f"maps the lossless class {klass} to {mapping[klass]}",
                        "map it to itself: the model has one number for both",
                    )

    def _limits(self, table: str, port: str) -> dict[int, BufferLimit]:
        found: dict[int, BufferLimit] = {}
        for name, row, at in self._rows(table):
            ports, _, classes = name.partition("|")
            if port not in ports.split(","):
                continue
            profile = _reference(row.get("profile"))
            if profile is None or profile == "NULL":
                continue
            limit = self._limit(profile, at)
            for klass in self._range(classes, at):
                found[klass] = limit
        return found

    def _limit(self, profile: str, at: str) -> BufferLimit:
        row, place = self._named("BUFFER_PROFILE", profile, f"{at}.profile")
        pool = _reference(row.get("pool"))
        if pool not in self._pools:
            raise ConfigError(
                f"{place}.pool", f"there is no pool {pool!r}", "choose from BUFFER_POOL"
            )
        alpha: int | None = None
        if "dynamic_th" in row:
            alpha = self._number(row, "dynamic_th", place, 0, lowest=-16, highest=16)
        size = self._number(row, "size", place, 0)
        xoff = self._number(row, "xoff", place, 0)
        xon = self._number(row, "xon", place, 0)
        # The size of a lossless profile is the sum of its reserved bytes and its
        # headroom.
        reserved = xon if xoff else size
        return BufferLimit(
            pool=pool,
            reserved_bytes=reserved,
            alpha_shift=alpha,
            static_bytes=self._number(row, "static_th", place, NO_LIMIT_BYTES),
            headroom_bytes=xoff,
            xon_bytes=xon,
            xon_offset_bytes=self._number(row, "xon_offset", place, 0),
        )

    def _weights(self, port: str) -> tuple[int, ...]:
        weights = [1] * CLASSES
        for klass, row, at in self._queue_rows(port):
            name = _reference(row.get("scheduler"))
            if name is None:
                continue
            scheduler, place = self._named("SCHEDULER", name, f"{at}.scheduler")
            kind = str(scheduler.get("type", "DWRR")).upper()
            if kind not in ("DWRR", "WRR", "STRICT"):
                raise ConfigError(
                    f"{place}.type", f"{kind!r} is not known", "use DWRR, WRR or STRICT"
                )
            weights[klass] = (
                0
                if kind == "STRICT"
                else self._number(scheduler, "weight", place, 1, lowest=1, highest=1000)
            )
        return tuple(weights)

    def _wred(self, port: str) -> tuple[WredSettings | None, ...]:
        found: list[WredSettings | None] = [None] * CLASSES
        for klass, row, at in self._queue_rows(port):
            name = _reference(row.get("wred_profile"))
            if name is None:
                continue
            profile, place = self._named("WRED_PROFILE", name, f"{at}.wred_profile")
            if str(profile.get("wred_green_enable", "true")).lower() != "true":
                continue
            # Without ECN, WRED drops packets of such a queue, which the model does not
            # do.
            if str(profile.get("ecn", "ecn_all")).lower() not in _MARKS_GREEN:
                continue
            if "green_min_threshold" not in profile:
                continue
            lowest = self._number(profile, "green_min_threshold", place, 0)
            highest = self._number(profile, "green_max_threshold", place, lowest)
            chance = self._number(
                profile,
                "green_drop_probability",
                place,
                _PROBABILITY,
                highest=_PROBABILITY,
            )
            try:
                found[klass] = WredSettings(
                    kmin_bytes=lowest,
                    kmax_bytes=highest,
                    probability=chance / _PROBABILITY,
                )
            except ValueError as error:
                raise ConfigError(place, str(error), "check its thresholds") from None
        return tuple(found)

    def _watchdog(self, port: str) -> WatchdogSettings | None:
        rows = _table(self._tables, "PFC_WD", self._where)
        if port not in rows:
            return None
        at = f"{self._where}: PFC_WD.{port}"
        row = _row(rows, port, f"{self._where}: PFC_WD")
        detection = self._number(row, "detection_time", at, 0, highest=_MOST_MS)
        if not detection:
            return None
        action = str(row.get("action", "drop")).lower()
        if action not in ("drop", "forward", "alert"):
            raise ConfigError(
                f"{at}.action", f"{action!r} is not known", "use drop, forward or alert"
            )
        common = (
            _row(rows, "GLOBAL", f"{self._where}: PFC_WD") if "GLOBAL" in rows else {}
        )
        poll = self._number(
            common,
            "POLL_INTERVAL",
            f"{self._where}: PFC_WD.GLOBAL",
            _POLL_MS,
            lowest=1,
            highest=_MOST_MS,
        )
        restoration = self._number(
            row,
            "restoration_time",
            at,
            2 * detection,
            lowest=1,
            highest=_MOST_MS,
        )
        return WatchdogSettings(
            detection_ns=detection * _MS_NS,
            restoration_ns=restoration * _MS_NS,
            action=action,  # type: ignore[arg-type] # one of the three
            poll_ns=poll * _MS_NS,
        )

    def _queue_rows(self, port: str) -> Iterator[tuple[int, Mapping[str, Any], str]]:
        for name, row, at in self._rows("QUEUE"):
            ports, _, classes = name.partition("|")
            if port in ports.split(","):
                yield from [(klass, row, at) for klass in self._range(classes, at)]

    def _qos(self, port: str) -> tuple[Mapping[str, Any], str]:
        rows = _table(self._tables, "PORT_QOS_MAP", self._where)
        at = f"{self._where}: PORT_QOS_MAP"
        for name in rows:
            if port in name.split(","):
                return _row(rows, name, at), f"{at}.{name}"
        if "global" in rows:
            return _row(rows, "global", at), f"{at}.global"
        return {}, at

    def _map(self, port: str, key: str, table: str, values: int) -> dict[int, int]:
        """Return a port's map, or the only map in the table."""
        rows = _table(self._tables, table, self._where)
        row, _ = self._qos(port)
        name = _reference(row.get(key))
        if name is None:
            if len(rows) != 1:
                return {}
            name = next(iter(rows))
        mapping, at = self._named(table, name, f"{self._where}: PORT_QOS_MAP.{key}")
        found: dict[int, int] = {}
        for key_text, value in mapping.items():
            text = str(key_text)
            if not text.isdecimal() or int(text) >= values:
                raise ConfigError(
                    f"{at}.{text}",
                    "is not a number of the map",
                    f"use 0 to {values - 1}",
                )
            found[int(text)] = self._class(str(value), f"{at}.{text}")
        return found

    def _rows(self, table: str) -> list[tuple[str, Mapping[str, Any], str]]:
        rows = _table(self._tables, table, self._where)
        at = f"{self._where}: {table}"
        return [(name, _row(rows, name, at), f"{at}.{name}") for name in rows]

    def _named(self, table: str, name: str, at: str) -> tuple[Mapping[str, Any], str]:
        rows = _table(self._tables, table, self._where)
        if name not in rows:
            raise ConfigError(
                at, f"refers to {table} {name!r}", "add it, or remove the reference"
            )
        return _row(
            rows, name, f"{self._where}: {table}"
        ), f"{self._where}: {table}.{name}"

    def _range(self, text: str, at: str) -> range:
        first, dash, last = text.partition("-")
        low = self._class(first, at)
        high = self._class(last, at) if dash else low
        if high < low:
            raise ConfigError(at, f"{text!r} is not a range of queues", "use e.g. 3-4")
        return range(low, high + 1)

    def _class(self, text: str, at: str) -> int:
        if text.isdecimal() and int(text) < CLASSES:
            return int(text)
        raise ConfigError(at, f"{text!r} is not a class", f"use 0 to {CLASSES - 1}")

    def _number(
        self,
        row: Mapping[str, Any],
        key: str,
        at: str,
        default: int,
        *,
        lowest: int = 0,
        highest: int = NO_LIMIT_BYTES,
    ) -> int:
        """Return a number, which SONiC writes as text."""
        if key not in row:
            return default
        text = str(row[key]).strip()
        digits = text[1:] if text.startswith("-") else text
        if (
            len(digits) > 20
            or not (digits.isascii() and digits.isdecimal())
            or not lowest <= int(text) <= highest
        ):
            raise ConfigError(
                f"{at}.{key}",
                f"{text[:40]!r} is not a number in {lowest}..{highest}",
                "use a whole number in this range",
            )
        return int(text)


def _reference(value: object) -> str | None:
    """Return a name, which older files write as ``[TABLE|name]``."""
    if value is None:
        return None
    text = str(value).strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1].rpartition("|")[2]
    return text


def _table(tables: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: {name}", "is not a table", "use an object of rows")
    return table


def _row(rows: Mapping[str, Any], name: str, at: str) -> Mapping[str, Any]:
    row = rows.get(name, {})
    if not isinstance(row, dict):
        raise ConfigError(f"{at}.{name}", "is not a row", "use an object of fields")
    return row
