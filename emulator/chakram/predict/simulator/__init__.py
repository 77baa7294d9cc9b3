"""Packet-level simulator: runs the emulator's program on a virtual fabric and clock."""
