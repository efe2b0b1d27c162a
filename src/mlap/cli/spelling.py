"""How the command line spells what the library calls by Python's names: one table, used for every error."""

from __future__ import annotations

import shlex
from typing import Any

#: the library's name of an argument → the verb's own parameter, where they differ
PARAMETERS = {
    "smiles": "smiles_column",
    "targets": "target",
    "split": "split_by",
    "part": "split",
    "on_invalid": "invalid",
    "root": "data_root",
    "fields": "settings",
    "cache": "no_cache",
    "select_metric": "metric",
    "rows": "shard_rows",
    "source": "dataset",
    "cpus": "cpus_per_run",
    "max_mapped": "tsne_graphs",
}


def spelling(command: Any) -> Any:
    """A function `spell(field[, value])` for the options of a verb (a click command, or `None` if there is none)."""
    options = {parameter.name: parameter for parameter in getattr(command, "params", ())}

    def spell(field: str, *value: Any) -> str:
        parameter = options.get(PARAMETERS.get(field, field)) or options.get(field)
        if parameter is None:
            if "settings" in options:  # a field of the recipe that has no option of its own
                return f"--set {field}={value[0]}" if value else f"--set {field}"
            return field.replace("_", " ") if not value else f"{field.replace('_', ' ')} {value[0]}"
        if parameter.param_type_name == "argument":
            return str(parameter.metavar or parameter.name.upper())
        flag: str = max(parameter.opts, key=len)
        if not value:
            return flag
        if parameter.is_flag:
            off = parameter.secondary_opts[0] if parameter.secondary_opts else f"without {flag}"
            return flag if value[0] else off
        return f"{flag} {shlex.quote(str(value[0]))}"

    return spell
