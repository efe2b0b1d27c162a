"""How Sphinx builds the site: `make docs`.

The source folder is the top of the checkout (`sphinx-build -c docs . build/site`), so that the pages of `docs` and
of `research` link to each other by the same relative paths on the site and in the repository.
"""

from importlib.metadata import version as installed_version
from pathlib import Path

project = "mlap"
author = "The mlap developers"
copyright = f"2026, {author}"
release = installed_version("mlap")

root_doc = "docs/index"
include_patterns = ["docs/**", "research/**", "CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = ["docs/_templates"]
templates_path = [str(Path(__file__).parent / "_templates")]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]

myst_heading_anchors = 3  # links to headings are written as GitHub makes them
default_role = "code"  # docstrings mark code by single backticks

# The reference lists `mlap.__all__`, so that no page has to name the public classes and functions again.
autosummary_ignore_module_all = False
autosummary_imported_members = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"

html_theme = "furo"
html_title = f"mlap {release}"
html_additional_pages = {"index": "redirect.html"}  # the first page lies in a folder; the site's address does not
