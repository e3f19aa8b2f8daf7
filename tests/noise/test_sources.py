"""Noise sources against the exact probabilities (chi-square, level 1e-4, fixed seeds where there are any)."""

import ast
import inspect
import math
import textwrap
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bayesprivmrf.errors import PrivacyError
from bayesprivmrf.mechanisms import base
from bayesprivmrf.noise import SecureNoise, SimulatedNoise, discrete, noise_source
from bayesprivmrf.noise import source as secure
from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, NoNoise

# The secure source cannot be seeded, so its test may fail by chance: once in a million runs.
LEVELS = {"secure": 1e-6, "simulated": 1e-4}
LAWS = [
    DiscreteLaplace(0.3),
    DiscreteLaplace(2.6),
    DiscreteGaussian(0.4),
    DiscreteGaussian(1.0),
    DiscreteGaussian(5.3),
]


def source_of(kind):
    return SecureNoise() if kind == "secure" else SimulatedNoise(np.random.default_rng(2024))


def chi_square_p_value(draws, law):
    """P-value of the draws against the law, cells of at least ten expected, the tails together."""
    reach = math.ceil(40 * law.scale) + 40
    support = np.arange(-reach, reach + 1)
    expected = np.exp(law.log_density(support)) * draws.size
    observed = np.bincount(draws + reach, minlength=support.size).astype(float)
    inside = expected >= 10
    tail = draws.size - expected[inside].sum(), draws.size - observed[inside].sum()
    if tail[0] < 1:
        assert tail[1] <= 12  # Poisson with mean below one: far under 1e-6
        observed[inside] *= expected[inside].sum() / observed[inside].sum()
        return stats.chisquare(observed[inside], expected[inside]).pvalue
    return stats.chisquare([*observed[inside], tail[1]], [*expected[inside], tail[0]]).pvalue


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("kind", ["secure", "simulated"])
def test_noise_has_the_exact_law(kind, law):
    size = 40_000 if kind == "simulated" else 15_000  # a secure number takes ten times as long
    draws = source_of(kind).add(np.zeros(size, dtype=np.int64), law)
    assert chi_square_p_value(draws, law) > LEVELS[kind]


def test_the_chi_square_test_would_see_noise_five_percent_too_narrow():
    draws = source_of("simulated").add(
        np.zeros(40_000, dtype=np.int64), DiscreteLaplace(2.6 * 0.95)
    )
    assert chi_square_p_value(draws, DiscreteLaplace(2.6)) < 1e-4


@pytest.mark.parametrize("law", LAWS[1:], ids=str)
def test_cells_get_independent_noise_around_their_own_counts(law):
    counts = np.arange(1000) * 1000
    noisy = source_of("simulated").add(np.tile(counts, 40), law).reshape(40, 1000)
    residuals = noisy - counts
    assert abs(residuals.mean()) < 4 * law.standard_deviation / math.sqrt(residuals.size)
    lagged = (residuals[:, 1:] * residuals[:, :-1]).ravel()
    assert abs(lagged.mean()) < 4 * law.variance / math.sqrt(lagged.size)


@pytest.mark.parametrize("kind", ["secure", "simulated"])
def test_real_valued_noise_on_counts_is_refused(kind):
    for law in (Laplace(1.0), Gaussian(1.0)):
        with pytest.raises(PrivacyError, match="whole numbers"):
            source_of(kind).add(np.zeros(2, dtype=np.int64), law)


@pytest.mark.parametrize("kind", ["secure", "simulated"])
def test_no_noise_returns_a_copy(kind):
    counts = np.arange(4)
    same = source_of(kind).add(counts, NoNoise())
    np.testing.assert_array_equal(same, counts)
    assert not np.shares_memory(same, counts)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_secure_noise_is_opendps_answer_and_nothing_else(law, monkeypatch):
    asked, answered = [], []
    true_measurement = type(law).measurement

    def spy(wanted):
        assert wanted == law

        def measurement(counts):
            asked.append(list(counts))
            answered.append(true_measurement(wanted)(counts))
            return answered[-1]

        return measurement

    monkeypatch.setattr(type(law), "measurement", spy)
    counts = np.arange(200) * 7
    noisy = SecureNoise().add(counts, law)
    assert asked == [counts.tolist()]
    assert noisy.tolist() == answered[0]


def names_in(tree):
    """Every name, attribute and imported module in a piece of source."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {part for alias in node.names for part in alias.name.split(".")}
            found |= set((getattr(node, "module", None) or "").split("."))
    return found


def source_names(thing):
    return names_in(ast.parse(textwrap.dedent(inspect.getsource(thing))))


SEEDED = {"random", "default_rng", "Generator", "generator", "_generator", "rng", "draw"}


def test_no_other_generator_is_reachable_from_the_secure_source():
    own = {
        name
        for name, thing in vars(secure).items()
        if inspect.isroutine(thing) or inspect.isclass(thing)
    }
    assert source_names(SecureNoise) & own <= {
        "SecureNoise",
        "NoiseSource",
        "NoiseDistribution",
        "_checked",  # of the type and shape of what was drawn
        "no_exact_draw",
        "whole_counts",  # of the type of what noise is added to
        "final",
    }
    assert "urandom" in source_names(
        SecureNoise
    )  # for choices, and for laws that OpenDP does not draw
    exact = [SecureNoise, discrete.opendp_measurement.__wrapped__]
    exact += [DiscreteLaplace.add_exactly, DiscreteLaplace.measurement]  # both laws have these
    assert DiscreteGaussian.add_exactly is DiscreteLaplace.add_exactly
    assert DiscreteGaussian.measurement is DiscreteLaplace.measurement
    exact += [law._added_to for law in (DiscreteLaplace, DiscreteGaussian)]
    for thing in [*exact, NoNoise.add_exactly]:
        assert not (SEEDED | {"secrets"}) & source_names(thing)
    imported = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(secure)))
        if isinstance(node, ast.Import)
    ]
    assert {alias.name for node in imported for alias in node.names} == {"math", "os", "numpy"}


def test_no_other_generator_stands_where_mechanisms_could_take_it():
    # NumPy's is in the laws' simulated draws and the simulated source, and in the type of a mechanism's `rng`
    laws = {"base.py", "continuous.py", "discrete.py", "likelihood.py", "published.py", "sums.py"}
    # `rule_checks.py` tries a rule of others on made-up counts, and keeps none of the draws
    seeded = laws | {"source.py", "rule_checks.py"}
    rooms = Path(secure.__file__).parent, Path(base.__file__).parent
    paths = [path for room in rooms for path in room.rglob("*.py")]
    assert len(paths) > 20
    for path in paths:
        names = names_in(ast.parse(path.read_text(encoding="utf-8")))
        assert not {"secrets", "SystemRandom", "Random"} & names
        assert "urandom" not in names or path.name == "source.py"
        if path.name not in seeded:
            assert not {"random", "default_rng", "Generator"} & names, path


def largest_dependence(noise):
    """Largest correlation of noise with itself moved or mirrored by any number of cells, in standard errors."""
    z = noise / noise.std()
    wave = np.fft.rfft(z)
    moved = np.fft.irfft(wave * np.conj(wave), z.size)[1 : z.size // 2 + 1] / math.sqrt(z.size)
    moved[-1] /= math.sqrt(2)  # each pair twice
    own = np.zeros(z.size)
    np.add.at(own, 2 * np.arange(z.size) % z.size, z**2)
    mirrored = (np.fft.irfft(wave**2, z.size) - own) / math.sqrt(2 * z.size)
    return max(np.abs(moved).max(), np.abs(mirrored).max())


DEPENDENCE = 8.0
"""Standard errors. One of 6143 normal numbers is above it with probability under 1e-11. The largest in 20,000
simulated vectors of this size is 5.8: products of two draws have heavier tails, but a false alarm stays far under
1e-6."""


@pytest.mark.parametrize("law", [DiscreteLaplace(2.6), DiscreteGaussian(5.3)], ids=str)
def test_secure_noise_does_not_depend_on_itself_within_a_table_or_between_two(law):
    source, zeros = SecureNoise(), np.zeros(2048, dtype=np.int64)
    noise = np.concatenate([source.add(zeros, law), source.add(zeros, law)]).astype(float)
    assert largest_dependence(noise) < DEPENDENCE


def test_the_test_of_dependence_sees_noise_that_is_repeated_or_mirrored():
    noise = (
        source_of("simulated")
        .add(np.zeros(4096, dtype=np.int64), DiscreteLaplace(2.6))
        .astype(float)
    )
    assert largest_dependence(noise) < DEPENDENCE
    half = noise[:2048]
    for other in (half, -half, half[::-1], -half[::-1], np.roll(half, 17)):
        assert largest_dependence(np.concatenate([half, other])) > 2 * DEPENDENCE


def test_only_a_seed_makes_a_simulated_source():
    assert not noise_source(None).is_simulated
    assert noise_source(0).is_simulated
    assert noise_source(np.int64(3)).is_simulated
    assert noise_source(np.random.default_rng()).is_simulated


def test_a_generator_moves_on_between_draws():
    source = noise_source(np.random.default_rng(1))
    first, second = (
        source.add(np.zeros(50, dtype=np.int64), DiscreteLaplace(3.0)) for _ in range(2)
    )
    assert not np.array_equal(first, second)


def test_huge_scales_stay_whole_numbers_with_the_stated_spread():
    for law in (DiscreteLaplace(1e12), DiscreteGaussian(1e12)):
        draws = source_of("simulated").add(np.zeros(4000, dtype=np.int64), law)
        assert draws.astype(float).std() == pytest.approx(law.standard_deviation, rel=0.15)
