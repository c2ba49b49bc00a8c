#!/usr/bin/env bash
# Streaming of weights over links of 1 Gb/s: a coordinator and one or two stages in network namespaces, whose links tc's tbf limits in both
# directions. Before and after each run a plain TCP connection measures what the link itself gives. Prints VALID or INVALID first: valid
# when every stage received what it was sent and the link was the same before and after, to 10 %. Needs root, tc, ip and python3.
# Usage: stream_link.sh <build directory> [MiB of the model]
set -u
bench=$(realpath "$1")/tests/bench/stream_bench
mib=${2:-300}
[ "$(id -u)" = 0 ] && unshare --net true 2>/dev/null || { echo "INVALID: NOT RUN: needs root, to make network namespaces"; exit 77; }
work=$(mktemp -d)
net=10.79.0

end() {
  for host in 0 1 2; do
    for pid in $(ip netns pids stb$host 2>/dev/null); do kill -9 "$pid"; done
    ip netns del stb$host 2>/dev/null
    rm -rf /etc/netns/stb$host
  done
  ip link del stbbr 2>/dev/null
  rm -rf "$work"
}
trap end EXIT

ip link add stbbr type bridge && ip link set stbbr up || { echo "INVALID: NOT RUN: cannot make a bridge"; exit 77; }
for host in 0 1 2; do
  ip netns add stb$host && ip link add stbv$host type veth peer name eth0 netns stb$host || { echo "INVALID: NOT RUN: no veth"; exit 77; }
  ip link set stbv$host master stbbr up
  ip -n stb$host addr add $net.$((host + 1))/24 dev eth0
  ip -n stb$host link set eth0 up
  ip -n stb$host link set lo up
  mkdir -p /etc/netns/stb$host
  printf '127.0.0.1 localhost\n%s stb0\n%s stb1\n%s stb2\n' $net.1 $net.2 $net.3 >/etc/netns/stb$host/hosts
  # Whole packets of up to 64 KiB pass a veth: the bucket holds some of them, and no more than 4 ms.
  tc qdisc add dev stbv$host root tbf rate 1gbit burst 512kb latency 50ms && tc -n stb$host qdisc add dev eth0 root tbf rate 1gbit burst 512kb latency 50ms ||
    { echo "INVALID: NOT RUN: no tbf"; exit 77; }
done
cat >"$work/agent" <<'AGENT'
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1; shift
mkdir -p "$STREAM_LINK_DIR/$host"
exec ip netns exec "$host" unshare --uts --ipc --pid --fork --kill-child --mount-proc bash -c "hostname $host; export TMPDIR=$STREAM_LINK_DIR/$host; $*"
AGENT
chmod +x "$work/agent"
cat >"$work/link.py" <<'LINK'
# link.py receive <port> <MiB>, or send <host> <port> <MiB>: seconds from the first byte to the last, at the receiver.
import socket, sys, time
if sys.argv[1] == "receive":
    server = socket.create_server(("", int(sys.argv[2])))
    link, _ = server.accept()
    left, buffer = int(sys.argv[3]) << 20, bytearray(1 << 20)
    begin = 0
    while left > 0:
        got = link.recv_into(buffer)
        if got == 0: sys.exit(1)
        begin = begin or time.monotonic()
        left -= got
    print(time.monotonic() - begin)
else:
    link = socket.create_connection((sys.argv[2], int(sys.argv[3])))
    for _ in range(int(sys.argv[4])): link.sendall(bytes(1 << 20))
    link.close()
LINK

# Mb/s of one plain connection from the coordinator's host to the first stage's.
link_rate() {
  ip netns exec stb1 python3 "$work/link.py" receive 7001 100 >"$work/seconds" &
  local receiver=$!
  sleep 0.5
  ip netns exec stb0 python3 "$work/link.py" send $net.2 7001 100
  wait $receiver
  awk '{printf "%.1f", 100 * 8 * 1.048576 / $1}' "$work/seconds"
}

"$bench" --make "$work/model.gguf" "$mib" >/dev/null || exit 1
export STREAM_LINK_DIR=$work OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
invalid=0
report=""
for stages in 1 2; do
  echo "stb0 slots=1" >"$work/hosts"
  for host in $(seq 1 $stages); do echo "stb$host slots=1" >>"$work/hosts"; done
  before=$(link_rate)
  line=$(ip netns exec stb0 unshare --uts bash -c 'hostname stb0; export TMPDIR='"$work"'; exec timeout 300 "$@"' _ mpirun --mca plm_rsh_agent "$work/agent" \
    --leave-session-attached --mca plm_rsh_no_tree_spawn 1 --hostfile "$work/hosts" --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include $net.0/24 \
    --mca oob_tcp_if_include $net.0/24 --mca mpi_yield_when_idle 1 --bind-to none -n $((stages + 1)) "$bench" "$work/model.gguf" 2>"$work/err") || cat "$work/err" >&2
  after=$(link_rate)
  read -r word _ count _ bytes _ ready <<<"$line"
  same=$(awk -v a="$before" -v b="$after" 'BEGIN {print (a > 0 && b > 0 && a / b < 1.1 && b / a < 1.1) ? 1 : 0}')
  [ "$word" = VALID ] && [ "$count" = $stages ] && [ "$same" = 1 ] || invalid=1
  report+=$(awk -v s=$stages -v n="${bytes:-0}" -v r="${ready:-1}" -v a="$before" -v b="$after" 'BEGIN {
    link = (a + b) / 2
    printf "%d stage%s: %.0f MiB; link %.0f and %.0f Mb/s; streamed and loaded at %.0f Mb/s, %.1f %% of the link", s, (s > 1 ? "s" : ""), n / 1048576, a, b, n * 8e-6 / r,
      100 * n * 8e-6 / r / link}')$'\n'
done
[ $invalid = 0 ] && echo VALID || echo INVALID
printf '%s' "$report"
exit $invalid
