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
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=2:00:00 State=UP OverSubscribe=NO
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
generate=("$programs/coordinator" generate -m "$programs/demo.gguf" -p "In the beginning God created" --raw -n 32 -t 1)

wrong() {
  sed 's/^/  2 /' err
  sed 's/^/  1 /' out
  stop 1 "$1"
}
# same_text <what>: `out` has the text of the run without Slurm, and nothing else; the statistics in `err` name both nodes.
same_nodes() { grep -qE '^0 +n[12] ' err && grep -qE '^1 +n2 ' err || wrong "$1: not on two nodes"; }
same_text() {
  same_nodes "$1"
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

# The same with a component for each program, which do not end at once: hetjob.sbatch says why.
srun --mpi=pmix --ntasks=1 "${generate[@]}" : --ntasks=2 sh -c "$programs/stage_worker; code=\$?; sleep 2; exit \$code" >out 2>err </dev/null || wrong "srun with components: exit code $?"
same_text "srun coordinator : stage_worker"

# Of the job $job.
state() { scontrol show job --oneliner "$job" | sed -nE "1s/.* $1=([^ ]+).*/\1/p"; }
# ended_with <what> <exit code, as a pattern>
ended_with() {
  local tries=0
  until [[ $(state JobState) =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)$ ]]; do
    [ $((tries += 1)) -lt 300 ] || wrong "$1: does not end, $(scontrol show job "$job")"
    sleep 0.1
  done
  [[ $(state ExitCode) == $2 ]] || wrong "$1: $(state JobState), exit code $(state ExitCode) where $2 is expected"
}
# sbatch --wait would ask only every few seconds.
# batch <what> <options of sbatch>: a job of these words in `command`.
batch() {
  printf '%s\n' '#!/bin/bash' "#SBATCH $2" "$(printf '%q ' "${command[@]}")" >job.sbatch
  job=$(sbatch --parsable --output=out --error=err job.sbatch) || wrong "$1: sbatch's exit code $?"
  ended_with "$1" 0:0
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

# ---- the scripts that users start from -----------------------------------------------------------------------------------------------

export STAGECOACH_BIN=$programs
scripts=$programs/deploy/slurm
requests=(batch -m "$programs/demo.gguf" -i "the king's requests.jsonl" -o answers.jsonl -n 20 -t 1 --seed 7 --ignore-eos --max-num-seqs 2)
for i in $(seq 36); do
  printf '{"custom_id":"%s","method":"POST","url":"/v1/completions","body":{"prompt":"And the king of Assyria spake %s"}}\n' "$i" "$i"
done >"the king's requests.jsonl"
answers() { grep -sc '"finish_reason":"length"' answers.jsonl || [ -e answers.jsonl ] || echo 0; }
# What does not change from run to run, in an order that does not.
texts() { sed -E 's/"(id|request_id)":"[^"]*"//g; s/"created":[0-9]+//' answers.jsonl | sort; }
run "$programs/coordinator" "${requests[@]}" --pp 2 -q 2>err </dev/null
[ "$(answers)" = 36 ] || wrong "without Slurm: $(answers) answers of 36"
texts >expected_texts
rm answers.jsonl

# started <script> <word>...: a job of one of our scripts, which goes on from the answers that are there.
started() { job=$(sbatch --parsable --output=out --error=err "$scripts/$1" "${@:2}") || wrong "sbatch $1: exit code $?"; }
# until_true <what> <command>...
until_true() {
  local tries=0
  until "${@:2}"; do
    [ $((tries += 1)) -lt 300 ] && [[ $(state JobState) =~ ^(PENDING|RUNNING|COMPLETING)$ ]] || wrong "$1: $(scontrol show job "$job")"
    sleep 0.1
  done
}
more_than() { [ "$(answers)" -gt "$1" ]; }
# drains <what> <options of scancel> <script>: told in mid-run, it finishes what runs, begins nothing new, says so, and has lost nothing.
drains() {
  local before
  before=$(answers)
  started "$3" "${requests[@]}" --stage-delay-us 15000
  until_true "$1: no answers" more_than "$before"
  run scancel $2 --signal=USR1 "$job"
  ended_with "$1" 130:0
  [ "$(answers)" -lt 36 ] || wrong "$1: began new requests"
  # Twice as many are handed out as run at once.
  [ "$(answers)" -ge $((before + 4)) ] || wrong "$1: $(answers) answers after $before, so what ran was not finished"
  grep -q 'run the same command again to go on' err || wrong "$1: does not say how to go on"
  ! grep -q 'the job was lost' err || wrong "$1: lost a job"
  echo "$1: drained after $(answers) of 36 answers"
}
drains "pipeline.sbatch, told through its script" --batch pipeline.sbatch
drains "mpirun.sbatch, told through its script" --batch mpirun.sbatch
drains "pipeline.sbatch, told through its ranks" "" pipeline.sbatch
drains "multiprog.sbatch, told through its ranks" "" multiprog.sbatch
started hetjob.sbatch "${requests[@]}"
ended_with "hetjob.sbatch" 0:0
same_nodes hetjob.sbatch
texts | cmp -s - expected_texts || wrong "four drains and a heterogeneous job: other answers than without Slurm"
echo "four drains and a heterogeneous job: the same 36 answers as without Slurm"

# A stage that dies under the user's own srun is final, and who ends the job is Slurm's choice. Where other tasks are left on the node,
# its PMIx plugin kills every task as soon as it sees the rank's connection go, whatever --kill-on-bad-exit says: it names the rank, and
# our script says what to do. Else the coordinator does both, in one message and with an exit code of its own. Which of the two it is
# stays a race, so that either is taken for either stage: the one beside the coordinator, and the one that is alone on its node.
for node in 0 1; do
  rm -f out err
  started multiprog.sbatch "${generate[@]:1:3}" --raw -p "And the king" -n 400 -t 1 --ignore-eos --stage-delay-us 30000
  until_true "generate in multiprog.sbatch" test -s out
  for process in /proc/[0-9]*; do
    if [ "$process/exe" -ef "$programs/stage_worker" ] && grep -qz "^SLURM_NODEID=$node" "$process/environ"; then victim=${process#/proc/}; fi
  done
  run kill -KILL "$victim"
  what="a stage killed under srun on node $node"
  ended_with "$what" '@(5:0|137:0)'
  named='^coordinator: .*stage [01] on n[12]'
  if [ "$(state ExitCode)" = 137:0 ]; then
    named='_errhandler: .*source = \[slurm\.pmix\.[0-9.]*:[12]\]'
    grep -q '^multiprog.sbatch: .*sbatch the same again' err || wrong "$what: the script does not say how to go on"
    grep -qE "$named" err || wrong "$what: nobody names it"
  else
    [ "$(grep -c "$named" err)" = 1 ] || wrong "$what: no message, or more than one, names it"
  fi
  echo "$what: $(grep -m 1 "$named" err)"
done

# ---- the end -------------------------------------------------------------------------------------------------------------------------

# Slurm's own files of a step go a moment after its end.
for _ in $(seq 100); do
  left=$(find /tmp /dev/shm -mindepth 1 && "${on_n2[@]}" find /tmp /dev/shm -mindepth 1)
  [ -n "$left" ] || break
  sleep 0.1
done
[ -z "$left" ] || wrong "left behind: $left"
echo "two nodes of Slurm: all as without"
