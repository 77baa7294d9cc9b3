"""RoCEv2 protocol engine: headers, queue pairs, congestion control.

The engine does no I/O and reads no clock. Its modules, from the inside out:

* A `requester` and a `responder` form a `queue_pair`.
* A `port` has many queue pairs and schedules their packets.
* A `burst` is the unit that leaves a port.
* `events` defines the reports: completed sends, received messages and failures.
* `packet_encoder` encodes bursts as bytes. `segment_parser` parses received bytes.
* `headers` represents packets as values. `icrc` computes the invariant CRC.

This file imports no modules, so a process loads only those that it needs.
"""
