"""RoCEv2 protocol engine: headers, queue pairs, congestion control.

The engine does no I/O and reads no clock. From the inside out:

* A `requester` and a `responder` form a `queue_pair`.
* A `port` holds many queue pairs and schedules their packets.
* A `burst` is the unit that leaves a port. `events` reports what happened.
* `packet_encoder` encodes bursts as bytes. `datagrams` parses received bytes.
* `headers` represents packets as values. `icrc` computes the invariant CRC.

This file imports no modules, so a process loads only those that it needs.
"""
