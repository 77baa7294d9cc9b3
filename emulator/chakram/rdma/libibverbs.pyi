from collections.abc import Sequence

from typing_extensions import Buffer

WORK_FIELDS: Sequence[str]
COMPLETION_FIELDS: Sequence[str]

def device_names() -> list[str]: ...
def status_text(status: int) -> str: ...

class Device:
    name: str
    firmware: str
    max_message_bytes: int
    rate_limits_kbps: tuple[int, int]
    path_mtu: int
    is_ethernet: bool
    is_active: bool
    def __init__(self, name: str) -> None: ...
    def gids(self) -> dict[int, str]: ...
    def close(self) -> None: ...

class Memory:
    address: int
    remote_key: int
    def __init__(
        self, device: Device, size_bytes: int, *, huge_page_bytes: int = 0
    ) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...
    def close(self) -> None: ...

class CompletionQueue:
    def __init__(self, device: Device, depth: int) -> None: ...
    def fileno(self) -> int: ...
    def arm(self) -> None: ...
    def poll(self) -> list[tuple[int, int, bool, int, int, int]]: ...
    def close(self) -> None: ...

class SharedReceives:
    def __init__(self, device: Device, memory: Memory, depth: int) -> None: ...
    def post_receives(
        self, count: int, first_id: int, *, offset: int = 0, size_bytes: int = 0
    ) -> None: ...
    def close(self) -> None: ...

class QueuePair:
    qpn: int
    def __init__(
        self,
        device: Device,
        memory: Memory,
        completions: CompletionQueue,
        *,
        send_depth: int,
        receive_depth: int,
        shared: SharedReceives | None = None,
    ) -> None: ...
    def connect(
        self,
        *,
        remote_qpn: int,
        remote_gid: str,
        gid_index: int,
        path_mtu: int,
        send_psn: int,
        receive_psn: int,
        traffic_class: int,
        remote_address: int,
        remote_key: int,
        timeout: int = 14,
        retries: int = 7,
        rnr_retries: int = 7,
        rnr_timer: int = 12,
        rate_kbps: int = 0,
    ) -> None: ...
    def post(self, rows: Buffer) -> None: ...
    def post_receives(
        self, count: int, first_id: int, *, offset: int = 0, size_bytes: int = 0
    ) -> None: ...
    def close(self) -> None: ...
