"""Sphinx settings: guides in Markdown, tutorials as notebooks, the reference from the docstrings."""

import importlib
import logging
import os
import re
import sys
import tomllib
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.ext.napoleon import NumpyDocstring
from sphinx.util.inspect import signature as signature_of
from sphinx.util.inspect import stringify_signature

DOCS = Path(__file__).parent

project = "bayesprivmrf"
author = "The bayesprivmrf developers"
copyright = "The bayesprivmrf developers"
release = version = installed_version("bayesprivmrf")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx-mathjax-offline",  # MathJax comes with the site, not from another server
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_reredirects",
]
if (
    DOCS / "benchmark_pages.py"
).exists():  # writes the tables of the benchmarks from benchmarks/results
    sys.path.insert(0, str(DOCS))
    extensions.append("benchmark_pages")
exclude_patterns = [
    "_build",
    "_static",
    "_templates",
    ".jupyter_cache",
    "jupyter_execute",
    "**.ipynb_checkpoints",
]
templates_path = ["_templates"]
html_theme = "furo"
html_title = "bayesprivmrf"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "_static" / "search_order.js")
suppress_warnings = ["ref.footnote"]  # numbered references of docstrings that no sentence cites

# --- guides and notebooks
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# figures of pyplot and ArviZ show below their cells, even if the environment names another backend, as CI does
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
nb_execution_mode = "cache"
nb_execution_raise_on_error = True  # a notebook or block that fails stops the build
nb_execution_timeout = 300  # seconds a cell
nb_execution_in_temp = True  # files that a block saves stay out of the source folder
nb_merge_streams = True
# remarks on compiling and progress bars name folders of the machine; tests fail for warnings in code and notebooks
nb_output_stderr = "remove"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# --- reference
autosummary_generate = True
autodoc_typehints = "none"  # the signature states them already
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
default_role = "literal"  # docstrings write names and code between single backticks


def directive_of(path):
    """Return the module of a name, the name, and the autodoc directive that documents it."""
    module, name = path.rsplit(".", 1)
    found = getattr(importlib.import_module(module), name)
    kind = (
        "autoclass"
        if isinstance(found, type)
        else "autofunction"
        if callable(found)
        else "autodata"
    )
    return module, name, kind


with open(DOCS / "reference" / "beside.toml", "rb") as file:
    beside = {
        page: [directive_of(path) for path in paths] for page, paths in tomllib.load(file).items()
    }
autosummary_context = {"beside": beside}

# --- links to other projects; the build passes, without these links, where the network is closed
intersphinx_mapping = {
    "arviz": ("https://python.arviz.org/en/stable/", None),
    "numpy": ("https://numpy.org/doc/stable/", None),
    "pandas": ("https://pandas.pydata.org/docs/", None),
    "pgmpy": ("https://pgmpy.org/", None),
    "pymc": ("https://www.pymc.io/projects/docs/en/stable/", None),
    "python": ("https://docs.python.org/3/", None),
    "xarray": ("https://docs.xarray.dev/en/stable/", None),
}
intersphinx_timeout = 5  # seconds
intersphinx_disabled_reftypes = [
    "*"
]  # a link goes to another project only where its name is spelled out


def without_network(record):
    """Report an inventory that cannot be fetched as information, so that ``-W`` does not stop the build."""
    if record.levelno == logging.WARNING and "failed to reach any of the inventories" in str(
        record.msg
    ):
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True


logging.getLogger("sphinx.sphinx.ext.intersphinx").addFilter(without_network)

# --- addresses of the site before its four kinds of page; each leads to the page that took its place
redirects = {
    "api": "reference/index.html",
    "benchmarks": "benchmarks/index.html",
    "chains": "explanation/chains.html",
    "command_line": "how-to/command-line.html",
    "developer/design_principles": "design-principles.html",
    "developer/own_estimator": "own-estimator.html",
    "developer/own_mechanism": "own-mechanism.html",
    "developer/own_noise_law": "own-noise.html",
    "developer/reference": "../reference/index.html",
    "dpsgd": "explanation/dpsgd.html",
    "frank_wolfe": "explanation/frank-wolfe.html",
    "further_names": "reference/index.html",
    "given_tables": "explanation/given-tables.html",
    "glossary": "reference/glossary.html",
    "inference": "explanation/estimators.html",
    "learning": "how-to/learn-a-model.html",
    "lower_bounds": "explanation/lower-bounds.html",
    "marginals": "explanation/marginals.html",
    "mechanisms": "explanation/mechanisms.html",
    "network": "explanation/network.html",
    "network_privacy": "explanation/network-privacy.html",
    "notation": "reference/notation.html",
    "parities": "explanation/parities.html",
    "plots": "gallery.html",
    "posterior": "explanation/posterior.html",
    "posterior_mathematics": "explanation/posterior-mathematics.html",
    "privacy": "explanation/privacy.html",
    "queries": "explanation/queries.html",
    "reproduce": "benchmarks/papers.html",
    "scores": "explanation/scores-and-levels.html",
    "select_measure": "explanation/select-measure.html",
    "structure": "explanation/structure.html",
    "using_solutions": "how-to/synthetic-data.html",
}


def copy_notebooks(app):
    """Copy the notebooks to the tutorials, and remove copies of notebooks that are gone."""
    source, target = DOCS.parent / "notebooks", Path(app.srcdir) / "tutorials"
    notebooks = sorted(source.glob("*.ipynb")) if source.is_dir() else []
    target.mkdir(exist_ok=True)
    for path in set(target.glob("*.ipynb")) - {target / each.name for each in notebooks}:
        path.unlink()
    for path in notebooks:
        # links lead from the folder of the notebooks to docs/, so that they work in the repository as well
        text, copy = (
            path.read_text(encoding="utf-8").replace("](../docs/", "](../"),
            target / path.name,
        )
        if (
            not copy.exists() or copy.read_text(encoding="utf-8") != text
        ):  # an equal copy keeps its age
            copy.write_text(text, encoding="utf-8")


def build_engines(app):
    """Compile what the notebooks call on all cores, once an installation: each notebook would do it on one."""
    if app.config.nb_execution_mode == "off":
        return
    if (DOCS.parent / "tests" / "built_engines.py").exists():
        sys.path.append(str(DOCS.parent / "tests"))
        importlib.import_module("built_engines").build()


def remove_old_pages(app):
    """Remove generated pages of names that the reference no longer lists."""
    listed = re.findall(
        r"^   (bayesprivmrf\S+)$", (DOCS / "reference" / "index.md").read_text(), re.MULTILINE
    )
    for path in (Path(app.srcdir) / "reference" / "generated").glob("*.rst"):
        if path.stem not in listed:
            path.unlink()


def parse_as_text(parse=NumpyDocstring._parse):
    """Let the docstring of a property be text: napoleon takes words before a colon for a type."""

    def parsed(self):
        if self._what in ("attribute", "data", "property"):
            self._what = "method"
        parse(self)

    NumpyDocstring._parse = parsed


def settings_of(app, what, name, obj, options, signature, returns):
    """Show the settings of a mechanism, whose constructor also takes what it refuses; hide private arguments."""
    if what == "class" and signature == "(*_, **settings)":
        found = signature_of(obj.__init__, bound_method=True)
        signature = stringify_signature(found, show_annotation=False, show_return_annotation=False)
    elif what == "class" and signature:
        signature = re.sub(r", _\w+(=[^,()]+)?", "", signature)
    return signature, returns


def setup(app):
    """Join the hooks."""
    parse_as_text()
    app.connect("builder-inited", build_engines)
    # before autosummary looks for pages
    app.connect("builder-inited", copy_notebooks, priority=400)
    app.connect("builder-inited", remove_old_pages, priority=400)
    app.connect("autodoc-process-signature", settings_of)
