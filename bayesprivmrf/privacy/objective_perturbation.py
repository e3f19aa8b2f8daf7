r"""Public constants of objective perturbation on one network: functions of J and the budget, never of outcomes.

The pseudo-likelihood score of outcomes s in {-1, +1}^n, with local fields :math:`m_i = \sum_j J_{ij} s_j`, is

.. math:: S(a; s) = \sum_i m_i (s_i - \tanh(a m_i)),

and the private estimate is the root a of :math:`S(a; s) - \Delta a = N` with noise N. As :math:`\Delta > 0`, the left
side falls strictly from +inf to -inf. So the root exists, is unique, and has the density

.. math:: f_s(a) = \nu(S(a; s) - \Delta a) \, (\Delta + G(a; s)), \qquad
    G(a; s) = \sum_i m_i^2 \operatorname{sech}^2(a m_i).

Neighbors differ in one node's outcome. The ratio of their densities is at most :math:`e^{\epsilon_N}` from the noise
(`score_sensitivity`), times :math:`e^{\epsilon_J}` from the slope (`least_curvature`). Both bounds hold for every
real a, so bounds on the estimate, of either sign, are post-processing. Chakraborty, Chatterjee, Dalal 2024, Section
A, has the argument with larger constants; docs/explanation/network-privacy.md proves the constants here.

A public external field (`ExternalField`) replaces :math:`m_i` by :math:`m_i - o_i` with :math:`o = c J 1`, and
:math:`\tanh(a m_i)` by :math:`\tanh(a (m_i - o_i) + h)`. Without a field, :math:`o, h, \tau, \rho` below are 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bayesprivmrf.checks import one_of, positive_finite, probability
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy.external_field import ExternalField

type Calibration = Literal["tight", "paper"]

# The root of u tanh u = 1, rounded up: the largest slope of :math:`x \tanh(a x)` in x, for any a.
#
# The slope is g(t) = tanh t + t / cosh^2 t at t = a x. Its derivative g'(t) = 2 (1 - t tanh t) / cosh^2 t vanishes
# only at u (t > 0), and there g(u) = 1/u + u (1 - 1/u^2) = u.
TANH_SLOPE = 1.19967864025774

# Factor that widens a bound that was computed in floating point.
SAFETY = 1 + 1e-11
# Relative rounding error of a sum of squares over the neighbors of a node.
_SUM_ERROR = 1e-12
# Steps of the power method: the norm guides the split of the budget alone, and needs no digits.
_POWER_STEPS = 60
# Nats of epsilon above which its exponential overflows; the Delta of a smaller epsilon is enough.
_LARGEST_EPSILON = 700.0
# Relative error of a logarithm of a normal tail, and of sums of two.
_TAIL_ERROR = 2e-15
# Halvings of a bracket, after which it has no number inside, and the factor that widens its upper end.
_HALVINGS = 80
_WIDER = 1 + 1e-9
# Argument up to which a hyperbolic cosine is computed: one over its square is 0 in double precision beyond.
_LARGEST_ARGUMENT = 300
# Shares of epsilon for the slope that are tried. The error is smooth in the share, and each is 2.3 % larger than the
# one before.
_SHARES = np.geomspace(0.004, 0.9, 241)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CouplingNorms:
    r"""Norms of a coupling matrix from which the constants follow; all use absolute values.

    Parameters
    ----------
    nodes
        n, the number of nodes.
    row_norm
        :math:`D = \max_i D_i`, :math:`D_i = \sum_j |J_{ij}|`.
    sensitivity
        Tight sensitivity of the score: see `score_sensitivity`.
    degree
        Largest number of neighbors of a node.
    squares
        :math:`\lambda^2 \sum_i J_{ij}^2`, shape (k,): of the nodes that no other node exceeds both here and in
        `products`.
    products
        :math:`\sum_i [\lambda^2 |J_{ij}| R_{ij} + \tfrac{\rho}{4} (|J_{ij}| - R_{ij})_+^2]`, shape (k,), where
        :math:`R_{ij} = D_i - |J_{ij}| + |o_i|` is the largest pull of the other nodes.
    paths
        :math:`\max_j \sum_i |J_{ij}| D_i`.
    spectral
        Largest eigenvalue of \|J\|, by power iteration: a scale for beta on which no bound rests.
    row_squares
        :math:`\sum_i J_{ij}^2`, shape (n,): for the proxy of the error; no bound rests on it.
    """

    nodes: int
    row_norm: float
    sensitivity: float
    degree: int
    squares: FloatArray
    products: FloatArray
    paths: float
    spectral: float
    row_squares: FloatArray

    @classmethod
    def of(
        cls, coupling: Any, field: ExternalField | None = None, offsets: FloatArray | None = None
    ) -> CouplingNorms:
        """Return the norms of a symmetric SciPy matrix in compressed rows, with zero diagonal.

        `offsets` are the offsets of the field for this matrix, or their rounded values.
        """
        size = abs(coupling)
        if field is not None and offsets is None:
            offsets = field.offsets(coupling)
        row_norms = np.asarray(size.sum(axis=1), dtype=float).ravel()
        squares = np.asarray(size.power(2).sum(axis=1), dtype=float).ravel()
        paths = size @ row_norms
        if offsets is None:
            pulls = paths
        else:
            pulls = paths + size @ np.abs(offsets)
        # each product is a difference of sums, so it is widened by their largest rounding error
        products = np.maximum(pulls - squares + _SUM_ERROR * pulls, 0.0)
        row_squares = squares
        # with a field, h moves by up to sech_slope times as much, and is not odd
        if field is not None:
            stretch = field.sech_slope**2
            excess = np.maximum(size.data - _other_pulls(size, offsets), 0) ** 2
            gaps = np.bincount(size.indices, excess, minlength=squares.size)
            squares = stretch * squares
            products = stretch * products + field.square_gap / 4 * gaps
        # nodes that no other node exceeds in both, by running maxima of the second
        order = np.lexsort((-products, -squares))
        running = np.maximum.accumulate(products[order])
        frontier = order[np.concatenate([[True], running[1:] > running[:-1]])]
        vector = np.ones(size.shape[0])
        norm = 0.0
        for _ in range(_POWER_STEPS):
            image = size @ vector
            norm = float(np.linalg.norm(image) / np.linalg.norm(vector))
            vector = image / np.abs(image).max()
        return cls(
            nodes=coupling.shape[0],
            row_norm=float(row_norms.max()),
            sensitivity=score_sensitivity(size, field=field, offsets=offsets),
            degree=int(np.diff(coupling.indptr).max()),
            squares=squares[frontier],
            products=products[frontier],
            paths=float(paths.max()),
            spectral=norm,
            row_squares=row_squares,
        )


def _other_pulls(size: Any, offsets: FloatArray | None) -> FloatArray:
    r"""Return :math:`R_{ij}`, the largest pull of all nodes except j on node i, for each entry (i, j) of \|J\|."""
    row_norms = np.asarray(size.sum(axis=1)).ravel()
    degrees = np.diff(size.indptr)
    others = np.repeat(row_norms, degrees) - size.data
    if offsets is None:
        return others
    return others + np.repeat(np.abs(offsets), degrees)


def score_sensitivity(
    size: Any,
    calibration: Calibration = "tight",
    *,
    field: ExternalField | None = None,
    offsets: FloatArray | None = None,
) -> float:
    r"""Return the sensitivity of the score: how far one node's outcome can move it, at any a.

    Let s' be s with node j flipped. Then :math:`m_i - m'_i = 2 J_{ij} s_j`, and :math:`m_j` does not change. In the
    quadratic form :math:`H = \sum_i m_i s_i` of J the pairs with j change sign, so
    :math:`|H - H'| = 4 |m_j| \le 4 D_j`. The term :math:`\kappa(x) = x \tanh(a x)` is even, and its slope is at most
    u* (`TANH_SLOPE`). The two fields of node i are :math:`r \pm J_{ij}`, where r is the pull of its other neighbors,
    :math:`|r| \le D_i - |J_{ij}|`. So its term moves by at most
    :math:`u^* \, \big| |r + J_{ij}| - |r - J_{ij}| \big| = 2 u^* \min(|r|, |J_{ij}|)`. Hence, for either sign of a
    and of J,

    .. math:: |S(a; s) - S(a; s')| \le \max_j \Big[ 4 D_j + 2 u^* \sum_i \min(|J_{ij}|, D_i - |J_{ij}|) \Big]
        \le (4 + 2 u^*) D = 6.39936 \, D.

    With a field, H is :math:`\sum_i (m_i - o_i) s_i`, which moves by at most :math:`4 D_j + 2 |o_j|`, and
    :math:`\kappa(x) = x \tanh(a x + h)` has slopes up to v (`ExternalField.tanh_slope`). Kappa is no longer even:
    :math:`|\kappa(y) - \kappa(-y)| \le 2 \tau |y|` with :math:`\tau = \tanh |h|`. So where
    :math:`|r| \le |J_{ij}|`, a node's term moves by at most :math:`2 v |r| + 2 \tau (|J_{ij}| - |r|)`. This bound
    increases in \|r\|, and

    .. math:: |S(a; s) - S(a; s')| \le \max_j \Big[ 4 D_j + 2 |o_j| + 2 \sum_i \big( v q_{ij} + \tau (|J_{ij}| -
        q_{ij}) \big) \Big], \qquad q_{ij} = \min(|J_{ij}|, D_i - |J_{ij}| + |o_i|).

    The paper bounds the slope by 2 and gets 8 D (Lemma A.1). The bound here is approached where node j has k
    neighbors of weight 1/k with the outcome +1, like its own, each of these has one further neighbor of weight 1 -
    1/k with the outcome -1, and a is near u*.

    Parameters
    ----------
    size
        \|J\|, a symmetric SciPy matrix in compressed rows with zero diagonal, of floats or of whole steps.
    calibration
        ``"tight"`` or ``"paper"``; the paper has no field.
    field, offsets
        The external field and its offsets, in the unit of `size`.

    Examples
    --------
    >>> from scipy import sparse
    >>> ring = sparse.csr_array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
    >>> round(score_sensitivity(ring), 4), score_sensitivity(ring, "paper")
    (12.7987, 16.0)
    """
    row_norms = np.asarray(size.sum(axis=1)).ravel()
    if calibration == "paper":
        return 8.0 * float(row_norms.max())
    # min(|r|, |J_ij|) at its largest, summed over the neighbors of each node
    shares = np.maximum(np.minimum(size.data, _other_pulls(size, offsets)), 0)
    swings = np.bincount(size.indices, shares, minlength=row_norms.size)
    if field is None or offsets is None:
        return float((4 * row_norms + 2 * TANH_SLOPE * swings).max())
    rest = np.bincount(size.indices, size.data - shares, minlength=row_norms.size)
    odd = math.tanh(abs(field.strength)) * SAFETY * rest + np.abs(offsets)
    return float((4 * row_norms + 2 * (field.tanh_slope * swings + odd)).max())


def least_curvature(norms: CouplingNorms, epsilon: float) -> float:
    r"""Return a Delta at which one node's outcome changes :math:`\Delta + G` by a factor of at most e^epsilon.

    Let s' be s with node j flipped. Two bounds hold, and the smaller Delta is enough for that node. Both rest on
    :math:`h(x) = x \operatorname{sech}(a x)`, which is odd and has slopes of at most 1 in size:
    :math:`h' = \operatorname{sech} t \, (1 - t \tanh t)` at t = a x lies in [-0.252, 1].

    1. :math:`\sqrt G` is the length of the vector :math:`h(m)`, so it moves by at most
       :math:`\|m - m'\| = 2 w`, :math:`w^2 = \sum_i J_{ij}^2`. The largest value of
       :math:`(\Delta + (q + 2w)^2) / (\Delta + q^2)` over q >= 0 is :math:`(r + w)/(r - w)` with
       :math:`r^2 = w^2 + \Delta`, taken at q = r - w; it is :math:`e^\epsilon` for
       :math:`\Delta = w^2 / \sinh^2(\epsilon/2)`.
    2. :math:`|h(x)^2 - h(y)^2| = |h(x) - h(y)| \, |h(x) - h(-y)| \le |x^2 - y^2|`, and with x, y the two local
       fields of node i, :math:`|x - y| = 2 |J_{ij}|` and :math:`|x + y| \le 2 (D_i - |J_{ij}|)`. So G moves by at
       most :math:`4 \sum_i |J_{ij}| (D_i - |J_{ij}|)`; this divided by :math:`e^\epsilon - 1` is enough.

    With a field, :math:`h(x) = x \operatorname{sech}(a x + h)` moves by at most :math:`\lambda` times x
    (`ExternalField.sech_slope`), so w becomes :math:`\lambda w`. In bound 2, :math:`|h(x)| \le \lambda |x|` replaces
    oddness. Of the fields :math:`r \pm J_{ij}`, the step from :math:`J_{ij} + r` to :math:`J_{ij} - r` changes
    :math:`h^2` by at most :math:`4 \lambda^2 |J_{ij} r|`, and the step from there to its negative by at most
    :math:`\rho (|J_{ij}| - |r|)^2` (`ExternalField.square_gap`). The sum increases in \|r\|; its largest values are
    `CouplingNorms.products`.

    Parameters
    ----------
    norms
        Norms of the coupling matrix.
    epsilon
        The part of the budget for this factor, nats.

    Returns
    -------
    float
        The largest, over nodes, of the smaller of the two bounds.
    """
    epsilon = min(positive_finite("epsilon", epsilon), _LARGEST_EPSILON)
    half = math.sinh(epsilon / 2)
    growth = math.expm1(epsilon)
    least = np.minimum(norms.squares / half / half, 4 * norms.products / growth)
    return float(np.max(least)) * SAFETY


def paper_curvature(norms: CouplingNorms, epsilon: float) -> float:
    r"""Return the paper's :math:`\Delta = (24/\epsilon) \max_j \sum_i |J_{ij}| D_i` for the whole epsilon.

    It keeps the ratio of slopes within :math:`e^{\epsilon/2}` (Lemma A.2). Two of its steps are loose: a factor of 12
    where 4 is enough, and :math:`1 + \epsilon/2` in place of :math:`e^{\epsilon/2}`.
    """
    return 24 / positive_finite("epsilon", epsilon) * norms.paths


def two_sided_delta(multiple: float, epsilon: float) -> float:
    r"""Return the delta of normal noise whose standard deviation is a multiple of the sensitivity.

    The two scores differ by a function :math:`\gamma(y)` that may change sign and is at most 1 in size, so

    .. math:: \delta = \int [\nu(y) - e^\epsilon \min_{|\gamma| \le 1} \nu(y + \gamma)]_+ dy
        = 2 \int_0^\infty [\nu(y) - e^\epsilon \nu(y + 1)]_+ dy.

    The bracket is positive from :math:`y_0 = \epsilon \sigma^2 - 1/2` on. Where :math:`y_0 \ge 0`, the integral is
    twice the delta of the analytic Gaussian mechanism. The result is rounded up by the largest rounding error of the
    two logarithms.

    Parameters
    ----------
    multiple
        Standard deviation over sensitivity.
    epsilon
        Budget, nats.

    References
    ----------
    Balle, Wang 2018, Theorem 8, for a difference of one sign.
    """
    from scipy.special import log_ndtr

    start = max(epsilon * multiple * multiple - 0.5, 0.0)
    tail = float(log_ndtr(-start / multiple))
    moved = float(log_ndtr(-(start + 1) / multiple))
    gap = epsilon + moved - tail - _TAIL_ERROR * (epsilon - moved - tail)
    if gap < 0:
        return 2 * math.exp(tail) * -math.expm1(gap)
    return 0.0


def gaussian_multiple(epsilon: float, delta: float) -> float:
    """Return the smallest multiple of the sensitivity at which `two_sided_delta` is at most delta, rounded up."""
    epsilon = positive_finite("epsilon", epsilon)
    delta = probability("delta", delta, zero=False)
    low = 0.0
    high = 1.0
    while two_sided_delta(high, epsilon) > delta:
        low = high
        high = 2 * high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        is_enough = middle > 0 and two_sided_delta(middle, epsilon) <= delta
        if is_enough:
            high = middle
        else:
            low = middle
    return high * _WIDER


def paper_gaussian_multiple(epsilon: float, delta: float) -> float:
    r"""Return the paper's standard deviation over sensitivity, :math:`\sqrt{8 \log(2/\delta) + 4 \epsilon}/\epsilon`.

    The argument is the whole epsilon; the noise spends half of it (Lemma A.3).
    """
    return math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Division of the budget between the noise and the slope, with the two constants that follow.

    Parameters
    ----------
    epsilon_noise, epsilon_slope
        Parts of the budget, nats; they add up to it.
    sensitivity
        Sensitivity of the score.
    multiple
        Scale of the noise divided by the sensitivity: Laplace noise where delta is 0, else normal noise.
    curvature
        Delta, the coefficient that is added to the score's slope.
    proxy_error
        Square root of the public approximation of the mean squared error of the estimate.
    """

    epsilon_noise: float
    epsilon_slope: float
    sensitivity: float
    multiple: float
    curvature: float
    proxy_error: float


def split_budget(
    norms: CouplingNorms, epsilon: float, delta: float, calibration: Calibration = "tight"
) -> Split:
    r"""Divide the budget between noise and slope, from J and the budget alone.

    ``"paper"`` takes halves. ``"tight"`` minimizes, over :math:`\epsilon_J` on a fixed grid, the squared error that
    the perturbation adds at one value of beta,

    .. math:: \frac{\operatorname{Var} N(\epsilon - \epsilon_J) + (\Delta(\epsilon_J) \beta_0)^2}
        {(I_0 + \Delta(\epsilon_J))^2}, \qquad \beta_0 = \frac{3}{2 \lambda}, \qquad
        I_0 = \sum_i w_i^2 \operatorname{sech}^2(\beta_0 w_i):

    from the noise and from the shrinkage of Delta towards 0, both divided by the slope of the score. Here
    :math:`\lambda` is the norm of \|J\|, so that beta_0 scales with the unit of J and lies above criticality in mean
    field. :math:`w_i^2 = \sum_j J_{ij}^2` is the mean of :math:`m_i^2` for independent fair outcomes. This error is
    an approximation: a poor one costs accuracy, never privacy.

    Raises
    ------
    ArgumentError
        ``calibration`` is neither ``"tight"`` nor ``"paper"``.
    """
    one_of("calibration", calibration, ("tight", "paper"))
    if calibration == "paper":
        sensitivity = 8 * norms.row_norm
    else:
        sensitivity = norms.sensitivity
    beta = 1.5 / norms.spectral
    typical = np.sqrt(norms.row_squares)
    information = float(
        np.sum((typical / np.cosh(np.minimum(beta * typical, _LARGEST_ARGUMENT))) ** 2)
    )

    def at(epsilon_slope: float, curvature: float, multiple: float) -> Split:
        variance = (multiple * sensitivity) ** 2 * (1 if delta > 0 else 2)
        error = math.sqrt(variance + (curvature * beta) ** 2) / (information + curvature)
        return Split(
            epsilon_noise=epsilon - epsilon_slope,
            epsilon_slope=epsilon_slope,
            sensitivity=sensitivity,
            multiple=multiple,
            curvature=curvature,
            proxy_error=error,
        )

    if calibration == "paper":
        if delta > 0:
            multiple = paper_gaussian_multiple(epsilon, delta)
        else:
            multiple = 2 / epsilon
        return at(epsilon / 2, paper_curvature(norms, epsilon), multiple)
    splits = []
    for share in _SHARES:
        slope = float(share * epsilon)
        noise = epsilon - slope
        if delta > 0:
            multiple = gaussian_multiple(noise, delta)
        else:
            multiple = 1 / noise
        splits.append(at(slope, least_curvature(norms, slope), multiple))
    return min(splits, key=lambda split: split.proxy_error)
