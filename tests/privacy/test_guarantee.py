"""Guarantees: forms, conversions, composition."""

import math
import re
import sys
import warnings
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee, compose

REMOVE = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
budgets = st.floats(1e-6, 30)
deltas = st.floats(1e-12, 0.5)


def pure(epsilon, **more):
    return PrivacyGuarantee(**{"epsilon": epsilon, "adjacency": REMOVE} | more)


def concentrated(rho, **more):
    return PrivacyGuarantee(**{"rho": rho, "adjacency": REMOVE} | more)


def randomised_response_delta(epsilon, at):
    """Hockey-stick divergence of two answers, truthful with odds e^epsilon, by summing over the two outcomes."""
    truth = 1 / (1 + math.exp(-epsilon))
    lie = 1 / (1 + math.exp(epsilon))
    return max(0.0, truth - math.exp(at) * lie) + max(0.0, lie - math.exp(at) * truth)


def test_three_forms_are_told_apart():
    assert pure(1.0).form == "pure"
    assert pure(1.0, delta=1e-6).form == "approximate"
    assert concentrated(0.5).form == "zero-concentrated"


@pytest.mark.parametrize(
    "value", [0, -1.0, math.nan, math.inf, -math.inf, True, "1", None, 1j, np.nan, [1.0]]
)
@pytest.mark.parametrize("name", ["epsilon", "rho"])
def test_a_budget_that_is_no_positive_finite_number_is_refused(name, value):
    with pytest.raises(ArgumentError, match=name):
        PrivacyGuarantee(**{name: value, "adjacency": REMOVE})


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan, math.inf, True, "0"])
def test_a_delta_that_is_no_probability_below_one_is_refused(delta):
    with pytest.raises(ArgumentError, match="`delta` must be in"):
        pure(1.0, delta=delta)


def test_both_or_neither_budget_is_refused():
    with pytest.raises(ArgumentError, match="exactly one"):
        PrivacyGuarantee(epsilon=1.0, rho=1.0, adjacency=REMOVE)
    with pytest.raises(ArgumentError, match="exactly one"):
        PrivacyGuarantee(adjacency=REMOVE)
    with pytest.raises(ArgumentError, match="beside `rho`"):
        concentrated(1.0, delta=1e-6)


def test_an_unknown_relation_or_unit_is_refused():
    with pytest.raises(ArgumentError, match="adjacency"):
        pure(1.0, adjacency="swap")
    with pytest.raises(ArgumentError, match="unit"):
        pure(1.0, unit=" ")


@given(epsilon=budgets, delta=deltas)
def test_pure_to_approximate_is_the_randomised_response_curve_and_no_smaller_epsilon_holds(
    epsilon, delta
):
    converted = pure(epsilon).to_approximate(delta)
    assert 0 <= converted.epsilon <= epsilon
    assert randomised_response_delta(epsilon, converted.epsilon) <= delta * (1 + 1e-12) + 1e-14
    below = converted.epsilon - 1e-6 * (1 + epsilon)
    if below > 0:
        assert randomised_response_delta(epsilon, below) > delta


@given(epsilon=budgets, own=st.floats(1e-9, 0.1), delta=st.floats(0.1, 0.5))
def test_approximate_to_a_larger_delta_is_tight(epsilon, own, delta):
    converted = pure(epsilon, delta=own).to_approximate(delta).epsilon
    reached = own + (1 - own) * randomised_response_delta(epsilon, converted)
    assert reached <= delta * (1 + 1e-12) + 1e-14
    if converted > 0:
        assert reached >= delta * (1 - 1e-9)


def test_a_smaller_delta_is_never_implied():
    with pytest.raises(PrivacyError, match="at least"):
        pure(1.0, delta=1e-6).to_approximate(1e-7)
    with pytest.raises(ArgumentError, match=r"in \(0, 1\)"):
        pure(1.0).to_approximate(0.0)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0, 10.0])
def test_pure_to_zero_concentrated_bounds_every_renyi_order_and_is_attained(epsilon):
    rho = pure(epsilon).to_zero_concentrated().rho
    orders = 1 + np.logspace(-4, 4, 400)
    truth = 1 / (1 + math.exp(-epsilon))
    log_odds = np.stack([orders * math.log(truth) + (1 - orders) * math.log1p(-truth),
                         orders * math.log1p(-truth) + (1 - orders) * math.log(truth)])  # fmt: skip
    divergence = np.logaddexp(*log_odds) / (orders - 1)
    assert np.all(divergence <= rho * orders * (1 + 1e-8) + 1e-10)
    relative_entropy = (2 * truth - 1) * epsilon  # the order-1 limit
    assert rho == pytest.approx(relative_entropy, rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 5.0])
def test_pure_to_zero_concentrated_is_no_worse_than_opendps_map(epsilon):
    from opendp import combinators, domains, measurements, metrics
    from opendp.mod import enable_features

    enable_features("contrib")
    space = domains.atom_domain(T="i64"), metrics.absolute_distance(T="i64")
    laplace = measurements.make_laplace(*space, scale=1 / epsilon)
    theirs = combinators.make_pureDP_to_zCDP(laplace).map(1)
    assert pure(epsilon).to_zero_concentrated().rho <= theirs * (1 + 1e-12)


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-2])
@pytest.mark.parametrize("rho", [0.005, 0.1, 1.0, 10.0])
def test_zero_concentrated_to_approximate_agrees_with_dp_accounting(rho, delta):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import dp_accounting
        from dp_accounting import rdp

    ours = concentrated(rho).to_approximate(delta).epsilon
    orders = 1 + np.logspace(-2, 3, 4000)
    theirs = rdp.RdpAccountant(orders).compose(dp_accounting.ZCDpEvent(rho)).get_epsilon(delta)
    assert ours == pytest.approx(theirs, rel=2e-3)
    # and it cannot be below the exact curve of one mechanism with this guarantee
    exact = dp_accounting.get_epsilon_gaussian(1 / math.sqrt(2 * rho), delta)
    assert ours >= exact


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_pure_to_approximate_agrees_with_dp_accounting(epsilon):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dp_accounting.pld import privacy_loss_distribution as pld

    other = 2 / (1 + math.exp(epsilon))  # their answer is uniform with this probability
    curve = pld.from_randomized_response(other, 2, value_discretization_interval=1e-4)
    for delta in (1e-6, 1e-2, 0.1):
        ours = pure(epsilon).to_approximate(delta).epsilon
        assert ours == pytest.approx(curve.get_epsilon_for_delta(delta), abs=2e-4)


def test_approximate_implies_no_zero_concentrated_guarantee():
    with pytest.raises(PrivacyError, match="must be 0 for a zero-concentrated guarantee"):
        pure(1.0, delta=1e-6).to_zero_concentrated()


@given(st.lists(budgets, min_size=1, max_size=6))
def test_composition_never_rounds_down(values):
    composed = compose(*[pure(value) for value in values]).epsilon
    exact = sum(map(Fraction, values))
    assert Fraction(composed) >= exact
    assert Fraction(math.nextafter(composed, 0)) < exact
    assert Fraction(compose(*[concentrated(value) for value in values]).rho) >= exact


def test_composition_of_approximate_guarantees_adds_both_numbers():
    both = compose(pure(1.0, delta=1e-6), pure(0.5, delta=2e-6))
    assert both.epsilon == 1.5
    assert both.delta == pytest.approx(3e-6)
    with pytest.raises(PrivacyError, match="add up to less than 1"):
        compose(pure(1.0, delta=0.6), pure(1.0, delta=0.6))


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (pure(1.0, unit="person"), "unit"),
        (pure(1.0, adjacency=REPLACE), "neighboring relation"),
        (concentrated(1.0), "form"),
    ],
)
def test_composition_refuses_what_differs_and_names_it(other, what):
    with pytest.raises(PrivacyError, match=f"share one {what}"):
        compose(pure(1.0), other)


def test_a_pure_promise_composes_with_an_approximate_one_and_neither_with_a_concentrated_one():
    both = compose(pure(1.0, delta=1e-6), pure(0.5))
    assert (both.epsilon, both.delta, both.form) == (1.5, 1e-6, "approximate")
    with pytest.raises(PrivacyError, match="share one form"):
        compose(pure(1.0, delta=1e-6), concentrated(1.0))


def test_composition_refuses_an_unprotected_release():
    with pytest.raises(ArgumentError, match="nothing composes with an unprotected release"):
        compose(pure(1.0), None)
    with pytest.raises(
        ArgumentError, match=r"write a star before it, as in compose\(\*guarantees\)"
    ):
        compose([pure(1.0), pure(2.0)], disjoint=True)
    with pytest.raises(
        ArgumentError, match="got a SimpleNamespace; pass its attribute `guarantee`"
    ):
        compose(SimpleNamespace(guarantee=pure(1.0)))
    with pytest.raises(ArgumentError, match="at least one"):
        compose()


@given(budgets, st.sampled_from(list(Adjacency)), st.sampled_from(["record", "person"]))
def test_as_dict_round_trips(value, adjacency, unit):
    for guarantee in (
        PrivacyGuarantee(epsilon=value, adjacency=adjacency, unit=unit),
        PrivacyGuarantee(rho=value, adjacency=adjacency, unit=unit),
        PrivacyGuarantee(epsilon=value, delta=1e-7, adjacency=adjacency, unit=unit),
    ):
        assert PrivacyGuarantee.from_dict(guarantee.as_dict()) == guarantee


def test_the_sentence_states_form_numbers_relation_unit_and_domain():
    text = concentrated(0.25, adjacency=REPLACE, unit="person").sentence()
    for part in (
        "zero-concentrated",
        "rho = 0.25",
        "replacement of one person",
        "public",
        "declared domain",
    ):
        assert part in text
    text = pure(1.5, delta=1e-6).sentence()
    for part in (
        "approximate",
        "epsilon = 1.5",
        "delta = 1e-06",
        "addition or removal of one record",
    ):
        assert part in text


@given(st.one_of(st.floats(1e-300, 1e308), budgets), deltas)
def test_the_sentence_never_states_less_than_the_guarantee(value, delta):
    for guarantee in (pure(value), concentrated(value), pure(value, delta=delta)):
        numbers = re.findall(r"(?:epsilon|rho|delta) = ([^, ]+)", guarantee.sentence())
        true = [value] if guarantee.delta == 0 else [value, delta]
        for text, number in zip(numbers, true, strict=True):
            assert number <= float(text) <= number * (1 + 1.1e-5)
            assert guarantee.delta or len(text) <= 12


def test_the_sentence_leaves_round_numbers_alone_and_rounds_others_up():
    assert "epsilon = 0.1 for" in pure(0.1).sentence()
    assert "epsilon = 0.123457 for" in pure(0.12345649).sentence()
    assert "epsilon = 3 for" in pure(2.9999996).sentence()
    assert "delta = 1.00001e-06" in pure(1.0, delta=1.0000004e-6).sentence()


def test_budgets_beyond_any_use_are_converted_or_refused_by_name():
    assert pure(1e300).to_zero_concentrated().rho == pytest.approx(1e300)
    with pytest.raises(ArgumentError, match="`rho`"):
        pure(sys.float_info.max).to_zero_concentrated()
    for rho in (1e6, 1e300, 1e308, sys.float_info.max):
        with pytest.raises(ArgumentError, match="`rho` must be small enough"):
            concentrated(rho).to_approximate(1e-6)


def test_a_guarantee_is_frozen():
    with pytest.raises(AttributeError):
        pure(1.0).epsilon = 2.0
