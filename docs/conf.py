"""Sphinx settings: guides in Markdown, the reference from the docstrings."""

from importlib.metadata import version as installed_version

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
