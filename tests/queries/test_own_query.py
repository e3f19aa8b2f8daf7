"""A query kind of another package: measured, saved, loaded, fitted and asked for, or refused before a charge."""

import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ModelError, ReleaseFileError
from bayesprivmrf.mechanisms import ExactStatistics, LaplaceStatistics

STATES = {"age": ["<30", "30-60", ">60"], "ill": ["no", "yes"]}
NETWORK = bpm.declare(STATES, [("age", "ill")])
PEOPLE = pd.DataFrame(
    {name: np.random.default_rng(4).choice(states, 2000) for name, states in STATES.items()}
)


@dataclass(frozen=True)
class AtLeast(q.Query):
    """The records whose state is at least each of a variable's states, in their declared order."""

    variable: str

    kind = "tests/at-least"

    def _bind(self, model):
        plain = q.table(self.variable).bind(model)
        size = len(plain)
        return q.BoundQuery(
            query=self,
            model=model,
            scopes=plain.scopes,
            matrix=q.weighted(self.variable, matrix=np.triu(np.ones((size, size))))
            .bind(model)
            .matrix,
        )

    def _labels(self, model):
        return tuple(f"{self.variable}>={state}" for state in model.domain.states_of(self.variable))

    def _total_weights(self, bound):
        return np.eye(1, len(bound))[0]

    def _content(self, domain):
        return {"variable": domain.index(self.variable)}

    @classmethod
    def _restored(cls, content, domain):
        return cls(domain.variables[content.whole("variable", 0, len(domain.variables) - 1)])


def test_a_query_of_another_package_goes_all_the_way_from_the_release_to_an_interval(tmp_path):
    asked = [AtLeast("age"), q.table("age", "ill")]
    release = LaplaceStatistics(epsilon=20.0, queries=asked).release(NETWORK, PEOPLE, rng=1)
    release.save(tmp_path / "own.release")
    again = bpm.load_release(tmp_path / "own.release")
    assert again == release
    assert again.queries == tuple(asked)
    solution = bpm.NoiseAwareMAP().fit(again)
    frame = solution.interval(AtLeast("age"), of="records")
    exact = ExactStatistics(queries=[AtLeast("age")]).release(NETWORK, PEOPLE).flat
    assert exact.tolist() == [(PEOPLE["age"].isin(STATES["age"][k:])).sum() for k in range(3)]
    assert list(frame.index) == ["age>=<30", "age>=30-60", "age>=>60"]
    np.testing.assert_allclose(frame["estimate"], exact, atol=5)


def test_a_file_of_an_unknown_query_kind_says_what_to_import(tmp_path):
    release = LaplaceStatistics(epsilon=1.0, queries=[AtLeast("age")]).release(NETWORK, PEOPLE)
    release.save(tmp_path / "own.release")
    load = f"import bayesprivmrf as bpm; bpm.load_release({str(tmp_path / 'own.release')!r})"
    found = subprocess.run(
        [sys.executable, "-c", load], capture_output=True, text=True, check=False
    )
    assert (
        "'tests/at-least'; install the package that made them, or import the module" in found.stderr
    )


def test_a_query_without_a_kind_is_refused_with_the_remedy_before_the_data_is_read():
    class Own(q.Query):
        def _bind(self, model):
            return replace(q.table("age").bind(model), query=self)

        def _labels(self, model):
            return tuple(model.domain.states_of("age"))

        def _total_weights(self, bound):
            return None

    class Unread:
        def __getattribute__(self, name):
            raise AssertionError("the data was looked at")

    with pytest.raises(
        ReleaseFileError, match="give the class a `kind`, `_content` and `_restored`"
    ):
        LaplaceStatistics(epsilon=1.0, queries=[Own()]).release(NETWORK, Unread())


def test_a_kind_without_its_hooks_or_of_another_class_is_refused_at_once():
    with pytest.raises(TypeError, match="must supply `_content` and `_restored`"):
        type("NoHooks", (q.Query,), {"kind": "tests/no-hooks"})
    hooks = {"_content": AtLeast._content, "_restored": AtLeast._restored}
    with pytest.raises(TypeError, match=r"another kind than 'table', which .*TableQuery has"):
        type("Usurper", (q.Query,), {"kind": "table"} | hooks)


class Unread:
    """Data that nobody may touch."""

    def __getattribute__(self, name):
        raise AssertionError(f"{name} was read")


class Counted(AtLeast):
    """The same query under a kind of its own, with weights that count some records twice."""

    kind = "tests/counted-twice"

    def _total_weights(self, bound):
        return np.ones(len(bound))


class Unlabeled(AtLeast):
    """The same query under a kind of its own, with a label too few."""

    kind = "tests/unlabeled"

    def _labels(self, model):
        return super()._labels(model)[1:]


class Inherited(AtLeast):
    """A query that would be read from its file as the one that it is derived from."""


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Counted("age"), "`Counted._total_weights` must give the number of records"),
        (Unlabeled("age"), "`Unlabeled._labels` must have a label for each of the 3 rows"),
    ],
)
def test_weights_and_labels_that_do_not_fit_are_refused_before_the_data_is_read(query, said):
    with pytest.raises(ModelError, match=said):
        LaplaceStatistics(epsilon=1.0, queries=[query]).release(NETWORK, Unread())


def test_a_query_that_inherits_its_kind_is_refused_before_the_data_is_read():
    with pytest.raises(Exception, match="Inherited have no written form; give the class a `kind`"):
        LaplaceStatistics(epsilon=1.0, queries=[Inherited("age")]).release(NETWORK, Unread())
