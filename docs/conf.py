"""How Sphinx builds the site: `make docs`.

The source folder is the top of the checkout (`sphinx-build -c docs . build/site`), so that the pages of `docs` and
of `research` link to each other by the same relative paths on the site and in the repository.
"""

from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

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


def _write_commands(app: Any) -> None:
    """Write the page of commands: what `mlap VERB --help` prints, so that it need not be written twice."""
    import typer

    from mlap.cli import app as command_line

    def pages(command: Any, name: str, parent: Any = None) -> list[str]:
        context = command.context_class(command, info_name=name, parent=parent, terminal_width=100)
        inner = getattr(command, "commands", {})
        if inner:
            return [line for word, each in inner.items() for line in pages(each, word, context)]
        return [f"## {context.command_path}", "", "```text", command.get_help(context).rstrip(), "```", ""]

    text = [
        "# Commands",
        "",
        "What `mlap VERB --help` prints.",
        "",
        *pages(typer.main.get_command(command_line), "mlap"),
    ]
    folder = Path(__file__).parent / "generated"
    folder.mkdir(exist_ok=True)
    (folder / "commands.md").write_text("\n".join(text), encoding="utf-8")


def _skips(app: Any, kind: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator, and describes in its own documentation."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", _skips)
    app.connect("builder-inited", _write_commands)
