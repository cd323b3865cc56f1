"""The fixtures of pytest."""

from __future__ import annotations

from typing import Any, Dict, Iterator

import pytest

from . import Cluster


@pytest.fixture(scope="session")
def berth_options() -> Dict[str, Any]:
    """What clusters consist of: keyword arguments of ``berth_test.Cluster``."""
    return {}


@pytest.fixture
def berth_cluster(berth_options: Dict[str, Any]) -> Iterator[Cluster]:
    """A cluster for one test."""
    with Cluster(**berth_options) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def berth_session(berth_options: Dict[str, Any]) -> Iterator[Cluster]:
    """One cluster for all tests that ask for it."""
    with Cluster(**berth_options) as cluster:
        yield cluster
