import importlib.util

import pytest

# Without installation of the package, its fixtures are loaded from the source.
if importlib.util.find_spec("berth_test") is None:
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
    from berth_test.plugin import berth_cluster, berth_session  # noqa: F401


@pytest.fixture(scope="session")
def berth_options():
    return {"nodes": 2}
