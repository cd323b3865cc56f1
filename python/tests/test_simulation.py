"""Simulations, and the notebook that shows them."""

import json
import math
import os
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import berth_test as berth

PODS = [
    {"name": "a", "arrival": "0", "duration": "10m", "cpu": "3", "memory": "1Gi"},
    {"name": "b", "arrival": "1m", "duration": "10m", "cpu": "3", "memory": "1Gi"},
    {"name": "c", "arrival": "2m", "duration": "1m", "cpu": 1, "memory": "1Gi", "namespace": "other"},
]


def offers_simulate():
    return shutil.which(os.environ.get("BERTH") or "berth") is not None


needs_berth = pytest.mark.skipif(not offers_simulate(), reason="berth is not on the PATH")


@needs_berth
def test_a_pod_waits_for_the_end_of_another():
    report = berth.simulate(PODS, nodes=1, pods=True)
    pods = {pod["name"]: pod for pod in report.pods()}
    assert pods["a"]["bound"] < 1
    # The node has 4 CPU: b gets them when a has ended, after 10 minutes and the start of its containers.
    assert 600 < pods["b"]["bound"] < 605
    assert pods["c"]["namespace"] == "other"
    waiting = {(row["by"], row["group"]): row for row in report.waiting()}
    assert waiting["namespace", "other"]["pods"] == 1
    assert 540 < waiting["all", ""]["max"] < 545


@needs_berth
def test_configurations_are_compared_by_their_names():
    packed = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    nodes = [{"name": "n", "count": 2, "cpu": 4, "memory": "8Gi"}]
    report = berth.simulate(PODS, nodes, {"usual": "default", "mine": packed}, seeds=2)
    assert report.configs == ["usual", "mine"]
    assert {(run["config"], run["seed"]) for run in report.data["runs"]} == {
        ("usual", 0),
        ("usual", 1),
        ("mine", 0),
        ("mine", 1),
    }
    bound = [row for row in report.comparison() if row["metric"] == "bound"]
    assert [row["mean"] for row in bound] == [3, 3]
    series = report.series()
    assert {"config", "seed", "at", "waiting", "allocated/cpu"} <= set(series[0])


@needs_berth
def test_files_and_data_frames_are_traces(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("name,arrival,duration,cpu\nx,0,1m,1\n")
    assert berth.simulate(path, 1).comparison()
    pandas = pytest.importorskip("pandas")
    report = berth.simulate(pandas.DataFrame(PODS), pandas.DataFrame([{"name": "n", "cpu": 8, "memory": "8Gi"}]))
    assert len(report.frame("waiting")) >= 3


START = datetime(2026, 1, 5, 10)
BERLIN = timezone(timedelta(hours=1))


@needs_berth
def test_values_are_those_of_python():
    rows = [
        {"name": "a", "arrival": START, "duration": timedelta(minutes=10), "cpu": 0.5, "count": 2.0, "priority": None},
        {"name": "b", "arrival": START.replace(hour=12, tzinfo=BERLIN), "duration": math.nan, "labels": {"app": "b"}},
    ]
    end = START + timedelta(hours=2)
    report = berth.simulate(rows, 1, until=end, durations=timedelta(hours=3), pods=True)
    [run] = report.data["runs"]
    assert (run["start"], run["seconds"]) == ("2026-01-05T10:00:00Z", 7200)
    # In Berlin, 12:00 is 11:00 UTC.
    assert [(pod["name"], pod["arrived"], pod["outcome"]) for pod in run["pods"]] == [
        ("a-0", 0, "finished"),
        ("a-1", 0, "finished"),
        ("b", 3600, "running"),
    ]
    trace = {"start": START, "pods": [{"name": "x", "requests": {"cpu": 1}, "labels": {"app": "x"}}]}
    assert berth.simulate(trace, 1).data["runs"][0]["start"] == "2026-01-05T10:00:00Z"


@needs_berth
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_times_of_data_frames_are_those_of_the_trace(library):
    frames = pytest.importorskip(library)
    columns = {"name": ["a", "b"], "arrival": [START, START], "duration": [timedelta(minutes=1), None], "count": [None, 3]}
    report = berth.simulate(frames.DataFrame(columns), 1)
    assert report.data["runs"][0]["summary"]["finished"] == 1
    assert report.data["runs"][0]["summary"]["running"] == 3


@needs_berth
def test_mistakes_are_those_of_the_program(tmp_path):
    with pytest.raises(berth.SimulationError, match="^berth: trace.csv: line 2, column 5, cpu"):
        berth.simulate([{"name": "x", "arrival": "0", "cpu": "much"}], 1)
    with pytest.raises(berth.SimulationError, match="not on the PATH"):
        berth.simulate(PODS, 1, binary="no-such-berth")
    with pytest.raises(ValueError, match="no rows"):
        berth.simulate([], 1)
    with pytest.raises(ValueError, match="default is given twice, as 'one' and 'two'"):
        berth.simulate(PODS, 1, {"one": "default", "two": "default"})


@needs_berth
def test_the_notebook_runs():
    """Executes the code cells in order, in one namespace: no kernel is needed for that."""
    path = Path(__file__).parents[1] / "examples" / "nodes.ipynb"
    notebook = json.loads(path.read_text())
    names = {}
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "the notebook is stored without outputs"
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
    # Fewer nodes, longer waits.
    waits = names["waits"]
    assert waits[6] > waits[12]
