"""The host agent: replays the ranks that the controller places on this host.

`chakram` is imported first: it installs the finder that chooses between compiled and
plain modules, for this package as well.
"""

import chakram

__version__ = chakram.__version__
