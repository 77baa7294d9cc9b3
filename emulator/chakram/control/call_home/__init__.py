"""Connections that launched agents open to their controller, and their certificates.

An agent that listens needs an address, an open port and certificates on its host. A
launched agent needs none of these: it connects to the controller with a token, gets a
certificate that is valid for this run only, and waits for calls on connections that it
has opened itself. The calls are the same.
"""
