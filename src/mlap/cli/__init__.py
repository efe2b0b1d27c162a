"""The command line. One file per verb; each parses, calls one function of the rooms, and prints.

Nothing here imports torch before a verb runs, so that `mlap --help` answers at once.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any

import typer

import mlap
from mlap.cli import (
    calibrate,
    compare,
    data,
    embed,
    ensemble,
    evaluate,
    explain,
    predict,
    probe,
    report,
    serve,
    sweep,
    train,
)
from mlap.cli.spelling import spelling
from mlap.errors import MlapError, UsageError
from mlap.names import load_plugins

app = typer.Typer(
    name="mlap",
    help="Train graph classifiers that use all localities at once, compare them, and look inside.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("explain")(explain.explain)
app.command("embed")(embed.embed)
app.command("ensemble")(ensemble.ensemble)
app.command("calibrate")(calibrate.calibrate)
app.command("serve")(serve.serve)
app.command("probe")(probe.probe)
app.command("sweep")(sweep.sweep)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.add_typer(data.app, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mlap {mlap.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; an expected error is one line on stderr and exit code 1 (the work) or 2 (the call)."""
    command = typer.main.get_command(app)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may lack letters that names and help texts have
        sys.stdout.reconfigure(errors="backslashreplace")
    if not sys.argv[1:]:
        sys.argv.append("--help")
    try:
        load_plugins()
        code = command.main(prog_name="mlap", standalone_mode=False)
    except UsageError as error:
        code = _fail(error.told(spelling(_verb(command))), 2)
    except MlapError as error:
        code = _fail(error.told(spelling(_verb(command))), 1)
    except (KeyboardInterrupt, typer.Abort):
        code = _fail("stopped", 130)
    except BrokenPipeError:  # the reader of our output has gone (`mlap … | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        code = _fail(f"{where}{error.strerror or error}", 1)
    except MemoryError:
        code = _fail("there is not enough memory for this", 1)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        code = _fail(f"{error.format_message()} See `mlap --help`.", 2)  # typer's own: an unknown option or verb
    sys.exit(code or 0)


def _verb(command: Any) -> Any:
    """The command that the arguments name."""
    for word in sys.argv[1:]:
        verbs = getattr(command, "commands", {})
        if word not in verbs:
            break
        command = verbs[word]
    return command


def _fail(message: str, code: int) -> int:
    print("mlap: " + " ".join(message.split()), file=sys.stderr)
    return code
