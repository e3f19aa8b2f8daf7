"""Analysis of a fit or a release: odds ratios, standardized risks and regressions with intervals, and tests.

Tests, such as `independence_test` and `goodness_of_fit`, take a release and return a `TestResult`. `report` writes a
release, its fit and tests to one file. Every other function takes a result with intervals, such as that of
`NoiseAwareMAP` or `LatentCounts`, and returns a frame with the columns of `interval`: ``estimate``, ``lower``,
``upper``, ``status`` and ``note``. Everything here is computed from what was released, and so costs no privacy
budget. All quantities describe the population from which the records were drawn.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
