#!/usr/bin/env bash
# Runs in a minimal Debian, as root, for slurm_two_nodes.sh: a Slurm of two nodes, and the programs under it. Node n1 is the root
# itself; n2 has a network, a host name, /tmp and /dev/shm of its own, as two machines with one file system would.
source /opt/stagecoach/deploy/last_words.sh
mkdir -p /job
cd /job
log=/var/log/slurm-of-two
mkdir -p $log
at_the_end() { [ "$1" -eq 0 ] || tail -n 20 $log/* >&2; }

# ---- two nodes -------------------------------------------------------------------------------------------------------------------

printf '127.0.0.1 localhost\n10.78.0.1 n1\n10.78.0.2 n2\n' >/etc/hosts
hostname n1
unshare --net --mount --uts --ipc bash -c '
  hostname n2
  mount -t tmpfs none /tmp
  mount -t tmpfs none /dev/shm
  echo $$ >/run/n2.pid
  exec sleep infinity' &
until [ -s /run/n2.pid ]; do sleep 0.05; done
on_n2=(nsenter --target "$(cat /run/n2.pid)" --net --mount --uts --ipc --)
ip link add eth0 type veth peer name eth0 netns "$(cat /run/n2.pid)"
ip addr add 10.78.0.1/24 dev eth0
ip link set eth0 up
"${on_n2[@]}" sh -ec 'ip addr add 10.78.0.2/24 dev eth0; ip link set eth0 up; ip link set lo up'

# ---- Slurm -----------------------------------------------------------------------------------------------------------------------

cat >/etc/slurm/slurm.conf <<END
ClusterName=two
SlurmctldHost=n1
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurm/state
SlurmdSpoolDir=/var/spool/slurm/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.%n.pid
SlurmctldLogFile=$log/slurmctld
SlurmdLogFile=$log/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
NodeName=n1,n2 CPUs=4 RealMemory=1000
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=10:00 State=UP OverSubscribe=NO
END
# There is no cgroup file system to find out a version from, and nothing here uses one.
echo CgroupPlugin=cgroup/v1 >/etc/slurm/cgroup.conf
mkdir -p /var/spool/slurm/state /run/munge
[ -s /etc/munge/munge.key ] || run mungekey --create
chown -R munge: /etc/munge /var/lib/munge /var/log/munge /run/munge
# Munge refuses a key below directories that others may write.
run setpriv --reuid=munge --regid=munge --init-groups munged
run slurmctld
run slurmd -N n1
run "${on_n2[@]}" slurmd -N n2
for _ in $(seq 100); do
  [ "$(sinfo --noheader --format=%D --states=idle 2>/dev/null)" != 2 ] || break
  sleep 0.1
done
[ "$(sinfo --noheader --format=%D --states=idle)" = 2 ] || stop 1 "no two idle nodes: $(sinfo --long --Node)"

# ---- the programs under it ---------------------------------------------------------------------------------------------------------

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
programs=/opt/stagecoach
generate=("$programs/coordinator" generate -m "$programs/demo.gguf" -p "In the beginning God created" -n 32 -t 1)

wrong() {
  sed 's/^/  2 /' err
  sed 's/^/  1 /' out
  stop 1 "$1"
}
# same_text <what>: `out` has the text of the run without Slurm, and nothing else; the statistics in `err` name both nodes.
same_text() {
  grep -qE '^0 +n[12] ' err && grep -qE '^1 +n2 ' err || wrong "$1: not on two nodes"
  cmp -s out expected || wrong "$1: other text than without Slurm"
  echo "$1: the same text"
}

run "${generate[@]}" --pp 2 -q >expected 2>err </dev/null
grep -q 'the heaven and the earth' expected || { cp expected out && wrong "without Slurm: not the demo model's text"; }

# One world over both nodes, the roles from a file.
cat >multiprog.conf <<END
0 ${generate[*]:0:4} -p 'In the beginning God created' ${generate[*]:6}
1-2 $programs/stage_worker
END
srun --mpi=pmix --nodes=2 --ntasks=3 --multi-prog multiprog.conf >out 2>err </dev/null || wrong "srun --multi-prog: exit code $?"
same_text "srun --multi-prog over two nodes"

# The same with a component for each program.
srun --mpi=pmix --ntasks=1 "${generate[@]}" : --ntasks=2 "$programs/stage_worker" >out 2>err </dev/null || wrong "srun with components: exit code $?"
same_text "srun coordinator : stage_worker"

cat >pipeline.sbatch <<END
#!/bin/bash
#SBATCH --nodes=2 --ntasks=3
srun --mpi=pmix --multi-prog multiprog.conf
END
sbatch --wait --output=out --error=err pipeline.sbatch >submitted || wrong "sbatch --wait: exit code $?, $(cat submitted)"
same_text "sbatch of a script"

# batch <what> <options of sbatch>: a job of these words in `command`.
batch() {
  printf '%s\n' '#!/bin/bash' "#SBATCH $2" "$(printf '%q ' "${command[@]}")" >job.sbatch
  sbatch --wait --output=out --error=err job.sbatch >submitted || wrong "$1: exit code $?"
}

# Inside an allocation the coordinator finds the nodes and starts the ranks itself, by srun or, where the user wants it, by mpirun.
command=("${generate[@]}" --dry-run)
batch "--dry-run in an allocation" "--nodes=2 --ntasks=2"
grep -q '/srun --mpi=pmix --ntasks=3 ' out || wrong "--dry-run in an allocation: no srun --mpi=pmix"
command=("${generate[@]}")
batch "coordinator in an allocation" "--nodes=2 --ntasks=2"
same_text "coordinator in an allocation, by srun"
command=("${generate[@]}" --launcher mpirun)
batch "coordinator in an allocation, by mpirun" "--nodes=2 --ntasks=2"
same_text "coordinator in an allocation, by mpirun"

# ---- the end -------------------------------------------------------------------------------------------------------------------------

# Slurm's own files of a step go a moment after its end.
for _ in $(seq 100); do
  left=$(find /tmp /dev/shm -mindepth 1 && "${on_n2[@]}" find /tmp /dev/shm -mindepth 1)
  [ -n "$left" ] || break
  sleep 0.1
done
[ -z "$left" ] || wrong "left behind: $left"
echo "two nodes of Slurm: all as without"
