r"""Parts of a variable's contrasts: scores of ordered states, and levels of nested areas.

The interaction of variables S in a log-linear model is :math:`e_S = (\bigotimes_{v ∈ S} Q_v) β_S` with an orthonormal
basis :math:`Q_v` of each variable's contrasts (`bayesprivmrf.model.effects`). Further knowledge about a variable
splits that basis, :math:`Q_v = [Q_v^1 \mid Q_v^2 \mid \dots]`, and thereby the effect into orthogonal parts
:math:`\bigotimes_v Q_v^{k_v}`:

- **Ordered states** with scores s: the first part of an interaction is linear in the scores,
  :math:`(s - \bar s) / \lVert s - \bar s \rVert`. This part alone is the linear-by-linear association model (Goodman
  1979; Agresti 2013, section 10.5). The log odds ratio of two rows and two columns is
  :math:`φ (s_i - s_j)(t_k - t_l)`, so that a pair of ordered variables has one parameter. If only one variable is
  ordered, there is one parameter for each free state of the other. The main effect stays free. With ``"smooth"`` the
  rest of the basis is a second part.
- **Levels of areas**: each level is a partition of the states that refines the level before it. The part of a level
  consists of the contrasts that are constant within its areas and sum to zero within each area of the level before:
  differences between tracts, then differences between the block groups of a tract. Main effects are split as well.

Each part of the model has its own prior scale (`bayesprivmrf.inference.loglinear_fit.scale_prior`), so that the
differences between areas are learned separately for each level. Parts that are left out restrict the model: :math:`θ
= Bβ` with fewer coordinates.

References
----------
Goodman (1979). Simple models for the analysis of association in cross-classifications having ordered categories.
Journal of the American Statistical Association 74, 537-552.
Agresti (2013). Categorical Data Analysis, third edition. Wiley.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import instance_of, is_labeled, sides_of
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.domain import Domain, Label, Variable, listed, require_fit
from bayesprivmrf.model.effects import contrasts
from bayesprivmrf.model.labels import aligned
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    from bayesprivmrf.model.specification import ModelSpecification


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of a variable's ordered states, which represent the states in its interactions.

    Parameters
    ----------
    variable
        The variable.
    values
        One number for each state, ascending.
    is_smooth
        True if the part that is not linear in the scores is kept, with its own prior scale.
    """

    variable: Variable
    values: tuple[float, ...]
    is_smooth: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Level of nested areas: a partition of a variable's states.

    Parameters
    ----------
    variable
        The variable.
    name
        Name of the level, such as ``"tract"``.
    areas
        States of each area.
    """

    variable: Variable
    name: str
    areas: tuple[tuple[Label, ...], ...]


def checked_scores(domain: Domain, given: Any) -> tuple[Scores, ...]:
    """Return the scores of ordered variables from the argument `ordinal` of `declare`: a list or a mapping."""
    if isinstance(given, tuple) and all(isinstance(one, Scores) for one in given):
        given = {
            one.variable: ("smooth" if one.is_smooth else "linear", one.values) for one in given
        }
    if isinstance(given, Mapping):
        items = given.items()
    else:
        items = [(v, "linear") for v in listed("`ordinal`", given)]
    found: dict[Variable, Scores] = {}
    for name, form in items:
        variable = domain.variables[domain.index(name)]
        count = len(domain.states_of(variable))
        is_pair = isinstance(form, tuple) and form[:1] in {("linear",), ("smooth",)}
        kind, values = form if is_pair else (form, None)
        if not isinstance(kind, str):
            values = kind
            kind = "linear"
        must = "be 'linear', 'smooth' or one number for each state"
        require_fit(kind in ("linear", "smooth"), f"`ordinal` of {variable!r}", must, repr(kind))
        what = f"the scores of {variable!r}"
        if is_labeled(values) or sides_of(values) is not None:
            values = aligned(what, values, [variable], [domain.states_of(variable)])
        if values is None:
            numbers = range(count)
        else:
            numbers = listed(what, values)
        scores = _numbers(variable, numbers, count)
        require_fit(
            variable not in found, "ordinal", "name each variable once", f"{variable!r} twice"
        )
        found[variable] = Scores(variable=variable, values=scores, is_smooth=kind == "smooth")
    return tuple(found[v] for v in domain.variables if v in found)


def _numbers(variable: Variable, given: Any, count: int) -> tuple[float, ...]:
    try:
        scores = np.array(list(given), dtype=float)
    except (TypeError, ValueError):
        scores = np.full(1, np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.diff(scores)
        reach = scores[-1:] - scores[:1]
    is_right = scores.shape == (count,) and np.isfinite(reach).all() and (steps > 0).all()
    must = f"be {count} finite, ascending numbers, one for each state"
    remedy = "leave them out for 0, 1, 2, ..., or declare the states in their order"
    require_fit(is_right, f"the scores of {variable!r}", must, "others", remedy)
    return tuple(scores.tolist())


def checked_levels(domain: Domain, given: Any) -> tuple[Level, ...]:
    """Return the levels in ``{variable: {level: {area: [states]}}}``, ordered from the coarsest to the finest."""
    if isinstance(given, tuple) and all(isinstance(one, Level) for one in given):
        nested: dict[Variable, dict[str, Any]] = {}
        for one in given:
            nested.setdefault(one.variable, {})[one.name] = dict(enumerate(one.areas))
        is_once = sum(map(len, nested.values())) == len(given)
        require_fit(
            is_once, "levels", "give different names to the levels of a variable", "one twice"
        )
        given = nested
    example = "{'block': {'tract': {'T1': ['B1', 'B2']}}}"
    given = instance_of(
        "levels", given, Mapping, f"be a mapping such as {example}", error=ModelError
    )
    found = []
    for name, levels in given.items():
        variable = domain.variables[domain.index(name)]
        what = f"`levels` of {variable!r}"
        must = "map names of levels to areas"
        instance_of(what, levels, Mapping, must, error=ModelError)
        is_clear = len({str(variable), *map(str, levels)}) == 1 + len(levels)
        must = "have names whose texts differ from each other and from the variable"
        require_fit(is_clear, f"the levels of {variable!r}", must, list(levels), "rename one")
        coarser = np.zeros(len(domain.states_of(variable)), int)
        for level, areas in levels.items():
            codes = _partition(domain, variable, level, areas)
            is_finer = len({*zip(coarser, codes, strict=True)}) == len(set(codes.tolist()))
            must = "lie inside one area of the level before"
            seen = "an area across two"
            remedy = "give the levels from the coarsest to the finest"
            require_fit(
                is_finer, f"each area of the level {level!r} of {variable!r}", must, seen, remedy
            )
            # the next level must refine this one
            coarser = codes
            states = domain.states_of(variable)
            members = [np.flatnonzero(codes == k) for k in range(int(codes.max()) + 1)]
            groups = tuple(tuple(states[s] for s in area) for area in members)
            found.append(Level(variable=variable, name=str(level), areas=groups))
    return tuple(found)


def _partition(domain: Domain, variable: Variable, level: Any, areas: Any) -> np.ndarray:
    """Return the number of each state's area, shape (states,)."""
    what = f"the level {level!r} of {variable!r}"
    seen = type(areas).__name__
    remedy = f"write {{{variable!r}: {{'region': {{'R1': [states]}}}}}}, where 'region' is the level's name"
    is_map = isinstance(areas, Mapping) and areas
    require_fit(is_map, what, "map each larger area to its states", seen, remedy)
    remedy = "map each larger area to a list of its states, not a state to its area"
    codes = np.full(len(domain.states_of(variable)), -1)
    for place, (area, states) in enumerate(areas.items()):
        members = [
            domain.code(variable, label) for label in listed(f"the area {area!r}", states, remedy)
        ]
        is_new = members and not (codes[members] >= 0).any() and len(set(members)) == len(members)
        seen = f"the area {area!r}, which is empty or repeats a state"
        require_fit(is_new, what, "have every state in exactly one area", seen)
        codes[members] = place
    missing = [
        label for label, code in zip(domain.states_of(variable), codes, strict=True) if code < 0
    ]
    require_fit(not missing, what, "have every state in one area", f"none for {missing[:1]}")
    return codes


def contrast_parts(
    model: ModelSpecification, variable: int
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Return the parts of a variable's contrasts in its main effect and in its interactions.

    Parameters
    ----------
    model
        The declared model, with its waves, levels and scores.
    variable
        Position of the variable.

    Returns
    -------
    main, joint : dict
        Name of each part and its orthonormal basis in Helmert's coordinates, shape (K - 1, d). A single part has the
        name "".
    """
    domain = model.domain
    name = model.domain.variables[variable]
    count = model.cardinalities[variable]
    whole = {"": np.eye(count - 1)}
    if name == model.waves:
        return {"waves": np.eye(count - 1)}, {}
    own = [level for level in model.levels if level.variable == name]
    if own:
        parts = _nested(domain, own)
        return parts, parts
    scores = next((one for one in model.ordinal if one.variable == name), None)
    if scores is None or count < 2:
        return whole, whole
    values = np.array(scores.values) - scores.values[0]
    line = contrasts(count).T @ (values / values[-1])  # contrasts remove the mean
    line /= np.linalg.norm(line)
    if not scores.is_smooth:
        return whole, {"": line[:, np.newaxis]}
    # the line first, then an orthonormal basis of the rest
    basis = np.linalg.qr(np.column_stack([line, np.eye(count - 1)]))[0]
    if count > 2:
        rest = {"rest": basis[:, 1 : count - 1]}
    else:
        rest = {}
    return whole, {"linear": line[:, np.newaxis]} | rest


def _nested(domain: Domain, levels: Sequence[Level]) -> dict[str, FloatArray]:
    """Return orthonormal bases of the contrasts that each level adds; the states themselves are the last level."""
    variable = levels[0].variable
    count = len(domain.states_of(variable))
    known = np.ones((count, 1))
    parts = {}
    indicators = {level.name: np.zeros((count, len(level.areas))) for level in levels}
    for level in levels:
        for place, area in enumerate(level.areas):
            indicators[level.name][[domain.code(variable, label) for label in area], place] = 1.0
    for name, columns in (indicators | {str(variable): np.eye(count)}).items():
        # the level adds the part of its indicators that is orthogonal to all coarser levels
        coarser = np.linalg.qr(known)[0]
        left, sizes, _ = np.linalg.svd(
            columns - coarser @ (coarser.T @ columns), full_matrices=False
        )
        new = left[:, sizes > 1e-9]
        if new.shape[1]:
            parts[name] = contrasts(count).T @ new
        known = np.column_stack([coarser, new])
    return parts or {"": np.zeros((count - 1, 0))}
