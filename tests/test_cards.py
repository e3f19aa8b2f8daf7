"""The HTML of results states status and promise, folds the rest away, and escapes whatever is written in it."""

from __future__ import annotations

from html.parser import HTMLParser

import pandas as pd
import pytest
from notebook import html_of

import bayesprivmrf as bpm
from bayesprivmrf.errors import SamplingWarning
from bayesprivmrf.mechanisms import GaussianStatistics, LaplaceStatistics, SelectMeasure, reference

# Names and states that would break a page if they were not escaped
HOSTILE = "<script>alert('x')</script>"
RECORDS = pd.DataFrame({HOSTILE: ["a", "<b>"] * 200, "y": ["a", "a", "<b>", "a"] * 100})
NETWORK = bpm.declare(states={HOSTILE: ["a", "<b>"], "y": ["a", "<b>"]}, cliques=[(HOSTILE, "y")])


class Page(HTMLParser):
    """Elements of a page, whether each is closed, and the text outside what is folded away."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: set[str] = set()
        self.visible = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.elements.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "details" not in self.open or "summary" in self.open:
            self.visible += f"{data} "


@pytest.fixture(scope="module")
def release():
    return LaplaceStatistics(epsilon=1.0).release(NETWORK, RECORDS, rng=1)


def shown(value: object) -> Page:
    page = Page(html_of(value))
    assert not page.open
    assert "script" not in page.elements
    # no color is written: the card takes those of the page, light or dark
    assert "color" not in html_of(value).replace("<style scoped>", "").split("<table", 1)[0]
    return page


def test_a_release_states_its_promise_and_folds_its_settings():
    real = GaussianStatistics(rho=0.5).release(NETWORK, RECORDS)
    page = shown(real)
    assert "rho = 0.5" in page.visible
    assert "SIMULATED" not in page.visible
    assert "Settings" in page.visible
    assert "opendp" not in page.visible
    assert "opendp" in html_of(real)


def test_a_simulated_release_is_marked(release):
    assert "SIMULATED: protects nobody" in shown(release).visible


def test_a_solution_states_its_status_and_folds_its_numbers(release):
    solution = bpm.NoiseAwareMAP().fit(release)
    page = shown(solution)
    for words in (
        "converged",
        "noise-aware MAP",
        "none, because the noise of a release was simulated",
    ):
        assert words in page.visible
    assert "Assumptions (" in page.visible
    assert "evaluations" not in page.visible
    assert "evaluations" in html_of(solution)
    assert "unprotected data" in shown(reference(NETWORK, RECORDS)).visible


def test_a_posterior_states_its_status_and_the_promise_of_its_release(release):
    # a few draws do not mix, so that there is a problem to show
    with pytest.warns(SamplingWarning):
        posterior = bpm.LatentCounts().fit(
            release, rng=1, draws=20, tune=20, chains=2, progress_bar=False
        )
    page = shown(posterior)
    assert posterior.status.value in page.visible
    assert "protects nobody" in page.visible
    assert "sampling seconds" not in page.visible
    assert posterior.problems
    for problem in posterior.problems:
        assert problem in page.visible


def test_a_learned_model_states_its_status_and_its_promise():
    network = bpm.declare(states={HOSTILE: ["a", "<b>"], "y": ["a", "<b>"]})
    learned = SelectMeasure(rho=0.5).release(network, RECORDS, rng=1)
    page = shown(learned)
    assert learned.status.value in page.visible
    assert "protects nobody" in page.visible
    assert "Settings" in page.visible


@pytest.mark.parametrize("mechanism", [LaplaceStatistics(epsilon=1.0), SelectMeasure(rho=0.5)])
def test_a_preview_states_its_promise_and_is_a_data_frame(mechanism):
    preview = mechanism.preview(NETWORK, 400)
    page = shown(preview)
    assert f"Preview of {type(mechanism).__name__}" in page.visible
    assert "nothing read, no budget spent" in page.visible
    assert mechanism.promise(NETWORK).sentence() in page.visible
    assert type(preview[preview.columns[:2]]) is pd.DataFrame
    assert preview.copy().attrs == preview.attrs


def test_long_texts_fold_behind_their_beginning():
    states = [f"state {k}" for k in range(60)]
    network = bpm.declare(states={"x": states, "y": ["a", "b"]})
    records = pd.DataFrame({"x": ["state 0", "state 1"] * 100, "y": ["a", "b"] * 100})
    learned = SelectMeasure(rho=0.5).release(network, records, rng=1)
    page = shown(learned)
    assert "state 59" in html_of(learned)
    assert "state 59" not in page.visible


def test_results_of_tests_and_regressions_are_cards():
    release = LaplaceStatistics(epsilon=5.0).release(NETWORK, RECORDS, rng=1)
    test = bpm.analysis.independence_test(release, HOSTILE, "y", draws=99, rng=1)
    assert f"{test.p_value:.3g}, with a standard error" in repr(test)
    assert test.note in repr(test)
    assert "array" not in repr(test)
    fit = bpm.analysis.regression(bpm.NoiseAwareMAP().fit(release), f"y ~ `{HOSTILE}`")
    assert "odds_ratios" in repr(fit)
    for result in (test, fit):
        page = Page(html_of(result))
        assert not page.open
        assert "script" not in page.elements
