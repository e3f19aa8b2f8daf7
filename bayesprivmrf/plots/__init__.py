"""Figures of estimates, intervals, posteriors, declared networks and learned models.

Every function returns a matplotlib Figure and changes no global state: a notebook displays it, and
``figure.savefig("name.png")`` writes it. A figure is at most 8 inches wide, so that its labels are legible in a
picture of 800 pixels. Methods differ by marker as well as by color, and the colors are those of Okabe and Ito, which
color-blind readers tell apart.
"""

import lazy_loader

# Names load on first use, so that a figure of what was released loads no code that reads data
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
