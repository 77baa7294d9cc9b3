"""Connections that launched agents open to their controller, and their certificates.

An agent that listens needs an address, an open port and certificates on its host. A
launched agent needs none of these. It connects to the controller with a token and gets
a certificate that is valid for this run only. It then waits for calls on connections
that it has opened itself. The calls are the same as for other agents.
"""
