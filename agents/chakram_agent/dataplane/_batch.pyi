from chakram_agent.dataplane.port_base import Port
from chakram_agent.dataplane.udp_sockets import UdpSockets

class BatchPort(Port):
    def __init__(self, sockets: UdpSockets) -> None: ...

def poll(epoll: int, timeout_ns: int) -> list[int]: ...
