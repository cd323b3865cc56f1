"""Clusters, seen by the official client."""

import socket

import pytest

import berth_test

kubernetes = pytest.importorskip("kubernetes")
from kubernetes import client, config, watch  # noqa: E402


def api_of(cluster):
    return config.new_client_from_config(cluster.kubeconfig)


def pod(name):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
    }


def test_a_pod_runs(berth_cluster):
    core = client.CoreV1Api(api_of(berth_cluster))
    assert len(core.list_node().items) == 2
    core.create_namespaced_pod("default", pod("p"))
    events = watch.Watch().stream(core.list_namespaced_pod, "default", timeout_seconds=60)
    assert any(event["object"].status.phase == "Running" for event in events)


def test_each_test_has_a_cluster_of_its_own(berth_cluster):
    core = client.CoreV1Api(api_of(berth_cluster))
    assert core.list_namespaced_pod("default").items == []


def test_a_session_is_shared(berth_session):
    core = client.CoreV1Api(api_of(berth_session))
    assert core.read_namespace("default").status.phase == "Active"


def test_a_bare_cluster_binds_nothing():
    with berth_test.Cluster(nodes=0, scheduler=False, controllers=False) as cluster:
        core = client.CoreV1Api(api_of(cluster))
        account = client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="robot"))
        core.create_namespaced_service_account("default", account)
        names = [a.metadata.name for a in core.list_namespaced_service_account("default").items]
        assert names == ["robot"]


def test_a_stopped_cluster_is_gone():
    with berth_test.Cluster() as cluster:
        host, port = cluster.url.removeprefix("https://").split(":")
        socket.create_connection((host, int(port))).close()
    with pytest.raises(OSError):
        socket.create_connection((host, int(port)))


def test_why_a_cluster_does_not_start_is_reported(tmp_path):
    manifest = tmp_path / "broken.yaml"
    manifest.write_text("kind: [Pod\n")
    with pytest.raises(berth_test.ClusterError, match="broken.yaml"):
        berth_test.Cluster(manifests=[manifest]).start()
    with pytest.raises(berth_test.ClusterError, match="not on the PATH"):
        berth_test.Cluster(binary="no-such-berth").start()
    with pytest.raises(ValueError):
        berth_test.Cluster(controllers=False)
