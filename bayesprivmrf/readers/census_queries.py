"""One query or constraint of the census's noisy measurement files, read as a measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.noise import NoiseLaw, Within
from bayesprivmrf.queries import Query
from bayesprivmrf.readers.census_files import Answers, LevelFiles
from bayesprivmrf.readers.scopes import Groups, query_of
from bayesprivmrf.release import Measurement
from bayesprivmrf.release.given import by_law, law_of_variance

# spellings of each sign of a constraint
_SPELT = {"=": ("", "=", "==", "eq"), "<=": ("<=", "le", "ub"), ">=": (">=", "ge", "lb")}
_SIGNS = {spelt: sign for sign, ways in _SPELT.items() for spelt in ways}
"""Meaning of a constraint's sign, or, where the files have none, of a part of its name."""


@dataclass(frozen=True, kw_only=True)
class AskedQuery:
    """One query or constraint of the files, for all areas of a level."""

    model: ModelSpecification
    area: Variable | None
    kind: type[NoiseLaw]
    name: str
    axes: Sequence[Variable | None]
    groups: Groups
    exact: bool

    def is_bound(self, areas: Mapping[str, Sequence[Label]], files: LevelFiles) -> bool:
        """Whether it bounds counts, in some area."""
        answers = (files.answers.get((code, self.name)) for code in areas)
        return self.exact and any(each is not None and self._sign(each.sign) != "=" for each in answers)

    def measurements(
        self, areas: Mapping[str, Sequence[Label]], files: LevelFiles, *, most: int = 0
    ) -> list[Measurement]:
        """Return the level's answers as one measurement, or several where the areas differ in their noise.

        `most` is the largest number of people that a count may be.
        """
        values, laws = [], []
        for code in areas:
            if (code, self.name) not in files.answers:
                raise DataError(
                    f"the level {files.level!r} must have the query {self.name!r} for the area {code!r}, got none; "
                    "leave the query or the area out."
                )
            answers = files.answers[code, self.name]
            numbers, law = self._summed(answers)
            sign = self._sign(answers.sign) if self.exact else "="
            if sign == "=":
                values.append(numbers)
                laws += [law] * numbers.size
                continue
            pairs = [_within(number, sign, most) for number in numbers]
            values.append(np.array([value for value, _ in pairs]))
            laws += [law for _, law in pairs]
        return by_law(self.model, self._query(areas), np.concatenate(values), laws)

    @property
    def _scope(self) -> tuple[Variable, ...]:
        return tuple(variable for variable in self.axes if variable is not None)

    def _query(self, areas: Mapping[str, Sequence[Label]]) -> Query:
        """Return the query on the model, with the area as its first axis where it is a variable."""
        scope, groups = self._scope, dict(self.groups)
        if self.area is None:
            return query_of(self.model, scope, groups)
        states = self.model.domain.states_of(self.area)
        if [tuple(held) for held in areas.values()] != [(label,) for label in states]:
            groups[self.area] = {code: labels for code, labels in areas.items()}  # noqa: C416
        return query_of(self.model, (self.area, *scope), groups)

    def _summed(self, answers: Answers) -> tuple[np.ndarray, NoiseLaw]:
        """Return one area's answers, summed over the axes that the model does not have, and their law."""
        shape, summed = self._shape(answers)
        table = np.array(answers.values).reshape(shape)
        law = law_of_variance(self.kind, 0.0 if self.exact else answers.variance)
        times = math.prod(shape[axis] for axis in summed)
        return table.sum(axis=summed).ravel(), law.summed(times)

    def _shape(self, answers: Answers) -> tuple[list[int], tuple[int, ...]]:
        """Return the shape of the file's table, and which axes are summed over."""
        domain, groups = self.model.domain, self.groups
        sizes = [None if v is None else len(groups.get(v, domain.states_of(v))) for v in self.axes]
        summed = tuple(axis for axis, size in enumerate(sizes) if size is None)
        whole = answers.shape or ()
        if not summed:
            shape = [size for size in sizes if size is not None]
            own, file = [size for size in shape if size != 1], [size for size in whole if size != 1]
            if len(own) == len(file) and own != file and math.prod(own) == len(answers.values):
                raise DataError(
                    f"the query {self.name!r} must have axes of {own} states, as declared, got {file} in the "
                    "files; write its axes in the file's order."
                )
        elif len(whole) == len(sizes):
            shape = [int(size) for size in whole]
        elif len(summed) == 1:
            others = math.prod(size for size in sizes if size is not None)
            shape = [size or len(answers.values) // others for size in sizes]
        else:
            raise ArgumentError(
                f"the axes of {self.name!r} must be as many as its `query_shape` in the files, {len(whole)}, to tell "
                f"which are summed over, got {len(sizes)}."
            )
        fits = all(size in (None, own) for size, own in zip(sizes, shape, strict=True))
        if not fits or math.prod(shape) != len(answers.values):
            raise DataError(
                f"the query {self.name!r} must have "
                f"{' x '.join('any' if s is None else str(s) for s in sizes) or 1} "
                f"numbers, as its axes have states, got {len(answers.values)}"
                f"{f' of shape {whole}' if whole else ''}; declare the states of the file, in its order."
            )
        return shape, summed

    def _sign(self, sign: str) -> str:
        """Return ``=``, ``<=`` or ``>=``; where the files do not say, by the name."""
        words = set() if sign else {"lb", "ub"} & set(self.name.split("_"))
        spelt = _SIGNS.get("".join(words) or sign.lower())
        if spelt is None or len(words) > 1:
            raise DataError(
                f"the constraint {self.name!r} must have a sign among {', '.join(filter(None, _SIGNS))}, got "
                "another; leave it out of `constraints`: what is left is a valid, less informed release."
            )
        return spelt


def _within(bound: float, sign: str, most: int) -> tuple[float, NoiseLaw]:
    """Return the value and the law of a count that is at most, or at least, a bound."""
    lower, upper = (0.0, min(bound, most)) if sign == "<=" else (max(bound, 0.0), most)
    if not 0 <= lower <= upper:
        raise ModelError(
            "bounds must leave some number of people, but one is below zero, or above all people."
        )
    return Within.between(math.ceil(lower), math.floor(upper))
