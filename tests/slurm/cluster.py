"""A real SLURM on this machine, for a while: munged, slurmctld and one slurmd for each of a few
nodes, all in one folder.

    python tests/slurm/cluster.py FOLDER [--nodes 3]

starts it, prints what to put into the environment so that `sbatch`, `squeue` and
`jbrl run --executor slurm` find it, and ends it at Ctrl-C. It needs Debian's packages slurmctld,
slurmd, slurm-client and munge (`apt-get install --no-install-recommends`), and root, as slurmd
does; neither systemd nor control groups, and nothing outside FOLDER is written. There is no
accounting, hence no `sacct`.

The nodes n1, n2, … are one machine: Debian builds SLURM with `--enable-multiple-slurmd`, where each
daemon has its own name (`slurmd -N`), port and spool folder. Each node claims two cores, which it
shares with the others, and one GPU, which is /dev/null.
"""

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")
SBIN = ("/usr/sbin", "/usr/local/sbin")
SECONDS = 30  # until everything answers

STUDY = """
[study]
name = "on a cluster"
n_environments = 8
horizon = 20
chunk = 1

[[experiments]]
name = "GC"
prior = "GC"
test = "GC"

[[experiments]]
name = "GC-again"
prior = "GC"
test = "GC"

[[agents]]
algorithm = "Random"

[[agents]]
algorithm = "OPPS-DS"
space = "F1"
budget = 200
"""

CONFIG = """
ClusterName=jbrl
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/spool/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=2
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=20
InactiveLimit=0
KillWait=20
MinJobAge=3600
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} CPUs=2 RealMemory=1000 Gres=gpu:1 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""  # noqa: E501


def missing() -> str:
    """Return the reason that a cluster cannot be started here; empty when it can."""
    lacking = [name for name in PROGRAMS if not _path(name)]
    if lacking:
        return (
            f"no {', '.join(lacking)} here: needs the packages slurmctld, slurmd, slurm-client "
            "and munge"
        )
    return "" if os.geteuid() == 0 else "slurmd needs root"


def _path(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(SBIN))


def _ports(n: int) -> list[int]:
    """Ports that are free just now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in sockets]


class Cluster:
    """Started by `with`, ended with it.

    Args:
      folder: for configuration, logs, state; made when missing.
      nodes: how many.
    """

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        self.folder = folder.resolve()
        self.names = [f"n{i}" for i in range(1, nodes + 1)]
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen] = []

    def __enter__(self) -> "Cluster":
        self._configure()
        try:
            self._start_munge()
            self._start("slurmctld", "-D", "-c")
            for name in self.names:
                self._start("slurmd", "-D", "-N", name)
            self._wait(
                "nodes that are idle",
                lambda: (
                    self.ask("sinfo", "-h", "-o", "%T %D").split() == ["idle", str(len(self.names))]
                ),
            )
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def ask(self, *command: str, check: bool = False) -> str:
        """Return the output of a SLURM command; nothing when it fails, unless `check`."""
        found = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if check and found.returncode:
            raise RuntimeError(f"{' '.join(command)}: {found.stderr.strip()}")
        return found.stdout.strip()

    def stop(self) -> None:
        """Cancel all jobs and end the daemons, the first one last."""
        if len(self._daemons) > 1:
            self.ask("scancel", "--signal=KILL", "--full", "--state=RUNNING")
            self.ask("scancel", "--state=PENDING")
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()

    def _configure(self) -> None:
        for folder in (self.folder, self.folder / "state", self.folder / "spool"):
            folder.mkdir(parents=True, exist_ok=True)
        host = socket.gethostname().partition(".")[0]
        controller, *ports = _ports(1 + len(self.names))
        nodes, listed = ",".join(self.names), ",".join(map(str, ports))
        lines = [
            CONFIG.format(
                folder=self.folder, host=host, controller=controller, nodes=nodes, ports=listed
            )
        ]
        (self.folder / "slurm.conf").write_text("".join(lines).lstrip())
        (self.folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    def _start_munge(self) -> None:
        key, place = self.folder / "munge.key", self.folder / "munge.socket"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        files = [
            f"--{name}-file={self.folder}/munge.{name}" for name in ("key", "log", "pid", "seed")
        ]
        self._start("munged", "--foreground", "--force", f"--socket={place}", *files)
        self._wait("the socket of munged", place.exists)

    def _start(self, program: str, *arguments: str) -> None:
        log = (self.folder / f"{program}.out").open("ab")
        with log:
            environment = {**os.environ, **self.environment}
            self._daemons.append(
                subprocess.Popen(
                    [str(_path(program)), *arguments],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not ready():
            ended = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            if ended or time.monotonic() > end:
                logs = "\n".join(
                    f"{path.name}: {path.read_text(errors='replace')[-1500:]}"
                    for path in sorted(self.folder.glob("*.[lo][ou][gt]"))
                )
                raise RuntimeError(f"waited in vain for {what}; ended: {ended}\n{logs}")
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description="A real SLURM on this machine, until Ctrl-C.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=3)
    given = parser.parse_args()
    if reason := missing():
        raise SystemExit(reason)
    # shells start what runs in the background deaf to the first
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with Cluster(given.folder, given.nodes) as running:
        print(  # noqa: T201
            *(f"export {name}={value}" for name, value in running.environment.items()),
            sep="\n",
            flush=True,
        )
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
