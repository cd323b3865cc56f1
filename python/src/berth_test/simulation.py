"""Simulations: a cluster over days, in virtual time, by ``berth simulate``."""

from __future__ import annotations

import csv
import datetime
import json
import os
import shutil
import subprocess
import tempfile
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union

__all__ = ["Report", "SimulationError", "simulate"]

Rows = Iterable[Mapping[str, Any]]


class SimulationError(RuntimeError):
    """``berth simulate`` cannot be run, or an input is wrong; the message is that of the program."""


def simulate(
    trace: Any,
    nodes: Any = None,
    configs: Union[Mapping[str, Any], Sequence[Any], None] = None,
    *,
    seeds: int = 1,
    seed: int = 0,
    until: Any = None,
    durations: Any = None,
    pods: bool = False,
    arguments: Iterable[str] = (),
    binary: Optional[str] = None,
) -> "Report":
    """Simulates a trace and returns the report.

    ``trace`` is the path of a trace, a data frame (pandas, polars) or a list of dictionaries with a row for each pod,
    a dictionary with the fields of a trace as YAML, or a list of paths. ``nodes`` is a number of nodes, a text such as
    ``10:cpu=16,memory=64Gi``, the path of a file, a data frame or a list of dictionaries. Columns are those of the CSV
    format (docs/use/simulate.md). Values may be dates (UTC unless they have a zone), timedeltas, and dictionaries of
    labels.

    ``configs`` are configurations of the scheduler: paths or the dictionaries of ``KubeSchedulerConfiguration``, in a
    list, or in a mapping from the name that the report shows. ``"default"`` is the default configuration. With several
    ``seeds``, the comparison has means and standard deviations. With ``pods``, the report has a row for each pod.
    """
    program = binary or os.environ.get("BERTH") or "berth"
    if shutil.which(program) is None:
        raise SimulationError(
            f"{program} is not on the PATH; install Berth, or set the variable BERTH"
        )
    with tempfile.TemporaryDirectory(prefix="berth-") as directory:
        scratch = Path(directory)
        command: List[str] = [program, "simulate", *_traces(trace, scratch)]
        if nodes is not None:
            command.append(f"--nodes={_nodes(nodes, scratch)}")
        names = {}
        for name, path in _configs(configs, scratch):
            if path in names:
                raise ValueError(f"the configuration {path} is given twice, as {names[path]!r} and {name!r}")
            command.append(f"--config={path}")
            names[path] = name
        command += [f"--seeds={seeds}", f"--seed={seed}", "--output=json"]
        for flag, value in (("until", until), ("durations", durations)):
            if value is not None:
                command.append(f"--{flag}={_text(value)}")
        if pods:
            command.append("--pods")
        ended = subprocess.run(
            [*command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    if ended.returncode != 0:
        # The files of rows are gone: their names are enough.
        message = ended.stderr.strip().replace(f"{scratch}{os.sep}", "")
        raise SimulationError(message or f"{program} failed")
    data = json.loads(ended.stdout)
    for named in (*data["runs"], *data["comparison"]):
        named["config"] = names.get(named["config"], named["config"])
    return Report(data)


class Report:
    """The result of simulations. ``data`` is the JSON of ``berth simulate -o json``."""

    def __init__(self, data: Dict[str, Any]) -> None:
        self.data = data

    @property
    def configs(self) -> List[str]:
        """The names of the configurations."""
        return [compared["config"] for compared in self.data["comparison"]]

    def comparison(self) -> List[Dict[str, Any]]:
        """A row for each configuration and metric: ``mean``, ``sd``, and the difference from the first one."""
        return [
            {"config": compared["config"], "metric": metric, **values}
            for compared in self.data["comparison"]
            for metric, values in compared["metrics"].items()
        ]

    def series(self) -> List[Dict[str, Any]]:
        """A row for each interval of each run; amounts of resources have names such as ``allocated/cpu``."""
        rows = []
        for run in self.data["runs"]:
            columns = {}
            for name, values in run["series"].items():
                if isinstance(values, list):
                    columns[name] = values
                elif isinstance(values, dict):
                    columns.update({f"{name}/{key}": own for key, own in values.items()})
            for place in range(len(columns.get("at", []))):
                row = {name: values[place] for name, values in columns.items()}
                rows.append({"config": run["config"], "seed": run["seed"], **row})
        return rows

    def waiting(self) -> List[Dict[str, Any]]:
        """A row for each run and group of pods: all, each namespace, each priority, each size. Times are in seconds."""
        rows = []
        for run in self.data["runs"]:
            groups = [("all", "", run["waiting"])]
            for by, field in (
                ("namespace", "byNamespace"),
                ("priority", "byPriority"),
                ("size", "bySize"),
            ):
                groups += [(by, group, waiting) for group, waiting in run[field].items()]
            for by, group, waiting in groups:
                counts = {key: waiting[key] for key in ("pods", "neverBound")}
                row = {"config": run["config"], "seed": run["seed"], "by": by, "group": group}
                rows.append({**row, **counts, **waiting["toBinding"]})
        return rows

    def pods(self) -> List[Dict[str, Any]]:
        """A row for each pod of each run; empty unless ``simulate`` was asked for pods."""
        rows = []
        for run in self.data["runs"]:
            for pod in run.get("pods", []):
                own = {key: value for key, value in pod.items() if key != "requests"}
                requests = {f"requests/{key}": value for key, value in pod["requests"].items()}
                rows.append({"config": run["config"], "seed": run["seed"], **own, **requests})
        return rows

    def frame(self, table: str) -> Any:
        """``comparison``, ``series``, ``waiting`` or ``pods`` as a data frame. Needs pandas."""
        if table not in ("comparison", "series", "waiting", "pods"):
            raise ValueError(f"{table!r} is no table; there are comparison, series, waiting, pods")
        import pandas

        return pandas.DataFrame(getattr(self, table)())

    def __repr__(self) -> str:
        return f"<Report of {len(self.data['runs'])} runs: {', '.join(self.configs)}>"


def _traces(trace: Any, scratch: Path) -> List[str]:
    if isinstance(trace, (str, Path)):
        return [str(trace)]
    if isinstance(trace, Mapping):
        # JSON is YAML.
        path = scratch / "trace.yaml"
        path.write_text(json.dumps(trace, default=_text), encoding="utf-8")
        return [str(path)]
    if isinstance(trace, (list, tuple)) and trace and all(isinstance(t, (str, Path)) for t in trace):
        return [str(path) for path in trace]
    return [_table(trace, scratch / "trace.csv")]


def _nodes(nodes: Any, scratch: Path) -> str:
    if isinstance(nodes, (Integral, str, Path)):
        return str(nodes)
    return _table(nodes, scratch / "nodes.csv")


def _table(rows: Any, path: Path) -> str:
    """Writes a data frame or rows as CSV."""
    if hasattr(rows, "to_dicts"):
        rows = rows.to_dicts()
    elif hasattr(rows, "to_dict"):
        rows = rows.to_dict("records")
    rows = [{name: _text(value) for name, value in row.items()} for row in rows]
    if not rows:
        raise ValueError("there are no rows")
    # In the order of their first use.
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def _text(value: Any) -> str:
    """A value as a trace has it: without a text for missing ones, times as dates or seconds, whole numbers as such."""
    # NaN and NaT are not equal to themselves.
    if value is None or value != value:
        return ""
    if isinstance(value, datetime.datetime):
        zone = value.tzinfo or datetime.timezone.utc
        return value.replace(tzinfo=zone).astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, datetime.timedelta):
        return repr(value.total_seconds())
    if isinstance(value, Mapping):
        return ";".join(f"{key}={own}" for key, own in value.items())
    if isinstance(value, Real) and not isinstance(value, Integral):
        value = float(value)
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def _configs(configs: Any, scratch: Path) -> List[Any]:
    """The name and the path of each configuration."""
    if configs is None:
        return []
    if isinstance(configs, Mapping) and "kind" not in configs:
        named = list(configs.items())
    else:
        listed = [configs] if isinstance(configs, (Mapping, str, Path)) else list(configs)
        number = lambda at, own: f"config-{at}" if isinstance(own, Mapping) else str(own)  # noqa: E731
        named = [(number(at, own), own) for at, own in enumerate(listed)]
    found = []
    for at, (name, config) in enumerate(named):
        if isinstance(config, Mapping):
            # JSON is YAML.
            path = scratch / f"config-{at}.yaml"
            path.write_text(json.dumps(config), encoding="utf-8")
            config = path
        found.append((name, str(config)))
    return found
