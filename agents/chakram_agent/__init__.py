"""The host agent: replays the ranks that the controller places on this host.

This package imports ``chakram`` first. That import installs the finder that chooses
between compiled and plain modules. The finder also applies to this package.
"""

import chakram

__version__ = chakram.__version__
