"""Sphinx settings: guides in Markdown, the reference from the docstrings."""

from importlib.metadata import version as installed_version

from sphinx.util.inspect import signature as signature_of
from sphinx.util.inspect import stringify_signature

project = "bayesprivmrf"
author = "The bayesprivmrf developers"
copyright = "The bayesprivmrf developers"
release = version = installed_version("bayesprivmrf")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "bayesprivmrf"

autodoc_typehints = "none"  # the signature states them already
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True


def settings_of(app, what, name, obj, options, signature, returns):
    """Show a mechanism's settings: what stands before its constructor takes anything, to refuse it by name."""
    if what == "class" and signature == "(*_, **settings)":
        signature = stringify_signature(signature_of(obj.__init__, bound_method=True))
    return signature, returns


def setup(app):
    """Join the hook."""
    app.connect("autodoc-process-signature", settings_of)
