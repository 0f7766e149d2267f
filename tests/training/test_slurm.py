"""A real Slurm of one node: the documented file runs a sweep as an array of two shards, and stops at SIGTERM."""

from __future__ import annotations

import getpass
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.training.console.test_shards import RECIPE, read_all
from tests.training.executors.test_processes import wait_until
from training import config
from training.console.sweep import train_all
from training.storage import metrics, run_directory

ROOT = Path(__file__).resolve().parents[2]
DAEMONS = ("munged", "slurmctld", "slurmd")
PATH = f"{os.environ['PATH']}:/usr/sbin"
pytestmark = pytest.mark.skipif(
    any(shutil.which(name, path=PATH) is None for name in DAEMONS), reason="apt-get install slurm-wlm munge"
)
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A running Slurm: the environment of its commands."""

    environment: dict[str, str]

    def ask(self, *command: str, folder: Path | None = None) -> str:
        """Run one of Slurm's commands."""
        done = subprocess.run(command, cwd=folder, env=self.environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def find_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """Start munged, slurmctld and slurmd in a folder of their own, and end them."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short: the path of a socket has 107 characters at most
    folder.chmod(0o755)
    for name in ("state", "spool", "munge", "bin"):
        (folder / name).mkdir()
    (folder / "munge").chmod(0o700)
    (folder / "munge" / "key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge" / "key").chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    text = CONFIGURATION.format(host=host, folder=folder, user=getpass.getuser(), ports=find_ports())
    (folder / "slurm.conf").write_text(text)
    command = folder / "bin" / "landscape"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from landscape.cli import main; main()" "$@"\n')
    command.chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PYTEST_", "COV_"))}
    environment = clean | {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": f"{folder}/bin:{PATH}",
        "PYTHONPATH": str(ROOT),
    }
    own = {name: f"--{name}={folder}/munge/{name}" for name in ("key-file", "pid-file", "log-file", "seed-file")}
    own["key-file"] = f"--key-file={folder}/munge/key"
    commands = [
        ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *own.values()],
        ["slurmctld", "-D", "-c", "-f", f"{folder}/slurm.conf"],
        ["slurmd", "-D", "-c", "-f", f"{folder}/slurm.conf"],
    ]
    daemons = []
    try:
        for number, one in enumerate(commands):
            log = open(folder / f"{one[0]}.log", "wb")  # noqa: SIM115 (its daemon writes to it)
            program = shutil.which(one[0], path=PATH)
            daemons.append(subprocess.Popen([str(program), *one[1:]], env=environment, stdout=log, stderr=log))
            log.close()
            if number == 0:
                wait_until(lambda: (folder / "munge.socket").exists())
        found = Slurm(environment)
        wait_until(lambda: is_idle(found))
        yield found
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def is_idle(slurm: Slurm) -> bool:
    done = subprocess.run(["sinfo", "-h", "-o", "%T"], env=slurm.environment, capture_output=True, text=True)
    return done.stdout.strip() == "idle"


def prepare(folder: Path, recipe: str) -> None:
    """Write the recipe and the file that docs/cluster.md shows."""
    found = re.search(r"<!-- sbatch -->\n```sh\n(.*?)```", (ROOT / "docs" / "cluster.md").read_text(), re.DOTALL)
    assert found is not None
    (folder / "sweep.sh").write_text(found[1])
    (folder / "sweep.toml").write_text(recipe)


def read_logs(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.glob("sweep-*.log")))


def test_an_array_of_two_shards_trains_the_sweep(slurm: Slurm, tmp_path: Path) -> None:
    from rich.console import Console

    prepare(tmp_path, RECIPE)
    job = slurm.ask("sbatch", "--parsable", "sweep.sh", folder=tmp_path)
    wait_until(lambda: not slurm.ask("squeue", "-h", "-j", job), 300)
    train_all(config.load(tmp_path / "sweep.toml"), tmp_path / "here", console=Console(quiet=True), backend="serial")
    assert (tmp_path / "runs").exists(), read_logs(tmp_path)
    assert read_all(tmp_path / "runs") == read_all(tmp_path / "here"), read_logs(tmp_path)
    for shard in range(2):  # each trained its own half
        assert "3 runs in runs" in (tmp_path / f"sweep-{shard}.log").read_text()


def test_sigterm_from_slurm_stores_the_round_and_exits_with_its_own_code(slurm: Slurm, tmp_path: Path) -> None:
    long = RECIPE.replace("count = 2", "count = 100000").replace("seed = [0, 1, 2]", "seed = [0]")
    prepare(tmp_path, f"checkpoints = {{every = 100000}}\n{long}")
    job = slurm.ask("sbatch", "--parsable", "--array=0-0", "sweep.sh", folder=tmp_path)

    def read_rounds() -> list[int]:
        return [len(metrics.read(run)) for run in (tmp_path / "runs").glob("*") if (run / "metrics.jsonl").exists()]

    wait_until(lambda: max(read_rounds(), default=0) > 2, 300)
    slurm.ask("scancel", f"--signal={signal.SIGTERM.name.removeprefix('SIG')}", job)
    wait_until(lambda: not slurm.ask("squeue", "-h", "-j", job), 120)
    assert "Exited with exit code 75" in read_logs(tmp_path)
    assert "Nothing saved is lost" in read_logs(tmp_path)
    run = next((tmp_path / "runs").iterdir())
    assert run_directory.checkpoint_rounds(run)[-1] == len(metrics.read(run)) > 2
