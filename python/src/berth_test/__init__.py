"""A Kubernetes cluster for tests, and simulations of clusters: starts Berth and stops it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Iterable, List, Optional, Union

from .simulation import Report, SimulationError, simulate

__all__ = ["Cluster", "ClusterError", "Report", "SimulationError", "simulate"]

_START_SECONDS = 60
_STOP_SECONDS = 10


class ClusterError(RuntimeError):
    """The cluster cannot start."""


class Cluster:
    """A cluster that runs within a ``with`` block, or between ``start`` and ``stop``.

    ``kubeconfig`` is the path of a kubeconfig of the administrator, ``url`` the URL of the API server.
    """

    def __init__(
        self,
        nodes: int = 1,
        scheduler: bool = True,
        controllers: bool = True,
        manifests: Iterable[Union[str, Path]] = (),
        arguments: Iterable[str] = (),
        binary: Optional[str] = None,
    ) -> None:
        if scheduler and not controllers:
            raise ValueError("controllers=False needs scheduler=False")
        manifests = [str(manifest) for manifest in manifests]
        if manifests and not scheduler:
            raise ValueError("manifests need scheduler=True")
        self._binary = binary or os.environ.get("BERTH") or "berth"
        self._subcommand = "up" if scheduler else "apiserver"
        self._arguments = [f"--nodes={nodes}", *arguments, *manifests]
        if not scheduler:
            self._arguments.append(f"--controllers={'on' if controllers else 'off'}")
        self._process: Optional[subprocess.Popen] = None
        self._directory: Optional[str] = None
        self.kubeconfig = ""
        self.url = ""

    def start(self) -> "Cluster":
        """Starts the cluster, and returns when it is ready."""
        if self._process is not None:
            raise ClusterError("the cluster runs already")
        if shutil.which(self._binary) is None:
            raise ClusterError(
                f"{self._binary} is not on the PATH; install Berth, or set the variable BERTH"
            )
        self._directory = tempfile.mkdtemp(prefix="berth-")
        self.kubeconfig = str(Path(self._directory) / "kubeconfig")
        command = [
            self._binary,
            self._subcommand,
            "--listen=127.0.0.1:0",
            "--metrics=127.0.0.1:0",
            f"--kubeconfig={self.kubeconfig}",
            *self._arguments,
        ]
        log = Path(self._directory) / "log"
        with open(log, "wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        timer = threading.Timer(_START_SECONDS, self._process.kill)
        timer.start()
        greeting = self._read_greeting()
        timer.cancel()
        if greeting is None:
            self._process.wait()
            why = log.read_text(errors="replace").strip()
            self.stop()
            raise ClusterError(f"the cluster has not started: {why}")
        words = " ".join(greeting).split()
        self.url = next((word for word in words if word.startswith("https://")), "")
        return self

    def _read_greeting(self) -> Optional[List[str]]:
        """The lines that are printed until the cluster is ready; ``None`` when it ends before."""
        lines = []
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                return lines
        return None

    def stop(self) -> None:
        """Stops the cluster. It is no error that it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def __enter__(self) -> "Cluster":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
