"""Sartor: personalised federated learning. Many clients learn together, each gets a model cut to its data.

The public names are in __init__.pyi. Each is loaded when it is first used: PyTorch comes with what computes.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
