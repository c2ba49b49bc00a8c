#!/usr/bin/env bash
# Runs a command as root in a minimal Debian of its own: for tests that need a bare machine, or packages and services that a user's
# machine should not get. The root is unpacked anew each time and deleted afterwards, whatever happens.
#
#   minimal_root.sh [option]... -- <command> [argument]...
#     --include PACKAGE[,PACKAGE]...   beside what the minimal system has
#     --copy FROM:TO                   a file or directory of this machine, copied to TO in the root
#     --read-only FROM:TO              a directory of this machine, seen at TO in the root and not writable there
#     --network                        the command has this machine's network, because it installs packages; without, it has a
#                                      loopback interface alone
#     --check                          says whether all this is permitted here, and runs nothing
#
# What the command prints is passed on, and its exit code is this script's. Exit code 77 means that this machine does not permit it;
# why is said on standard error. The command has mount, process, host-name and IPC namespaces of its own, sees nothing else of this
# machine, and no service starts by itself (policy-rc.d). When it ends, all that it started ends too.
#
# A root as it was before its first command, and downloaded packages, are kept for the next time in ${XDG_CACHE_HOME:-~/.cache}/stagecoach:
# a root for a week, and only for the same packages, apt sources and settings. The root gets this machine's apt sources and settings, but no
# credentials. It takes about 0.4 GB and what is installed in it: of memory where there is much, which is half as much work for the kernel,
# else in ${TMPDIR:-/var/tmp}.

source "$(dirname "${BASH_SOURCE[0]}")/../../deploy/last_words.sh"

kept=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/stagecoach
cache=$kept/packages
roots=${TMPDIR:-/var/tmp}/stagecoach-roots

# ---- in the new namespaces -------------------------------------------------------------------------------------------------------

# show <file or directory> <path> <mount options>: another place for it.
show() { mount --bind "$1" "$2" && mount -o "remount,bind,$3" "$2"; }

mount_system() {
  local root=$1 node
  mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
  show "$root/proc/sys" "$root/proc/sys" ro
  mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
  mount -t tmpfs -o mode=755,nosuid tmpfs "$root/dev"
  for node in null zero full random urandom tty; do
    : >"$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
  done
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
  mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s /proc/self/fd/0 "$root/dev/stdin"
  ln -s /proc/self/fd/1 "$root/dev/stdout"
  ln -s /proc/self/fd/2 "$root/dev/stderr"
}

# SIOCSIFFLAGS with IFF_UP | IFF_RUNNING; Perl is on every Debian, iproute2 is not.
raise_loopback() {
  perl -e 'my ($s, $lo) = (undef, pack("a16 s x22", "lo", 0x41)); socket($s, 2, 2, 0) && ioctl($s, 0x8914, $lo) or die "lo: $!\n"'
}

# enter <root> <with network?> <number of shown directories> <FROM:TO>... <command>...: process 1 of the namespaces. It waits for the
# command, so that processes which have lost their parent are reaped.
enter() {
  local root=$1 network=$2 shown=$3 place
  shift 3
  mount --bind "$root" "$root"
  mount_system "$root"
  for place in "${@:1:shown}"; do
    mkdir -p "$root/${place#*:}"
    show "${place%%:*}" "$root/${place#*:}" ro,nosuid,nodev
  done
  shift "$shown"
  [ "$network" = yes ] || raise_loopback
  hostname minimal-root
  mkdir -p "$root/.machine"
  cd "$root"
  pivot_root . .machine
  umount --lazy /.machine
  rmdir /.machine
  trap - ERR EXIT HUP INT TERM
  # shellcheck disable=SC2016
  exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" \
    /bin/bash -c 'cd / && code=0; "$@" || code=$?; exit $code' minimal-root "$@"
}

# ---- outside ---------------------------------------------------------------------------------------------------------------------

skip() {
  echo "SKIPPED: no minimal Debian on this machine: $*" >&2
  said_why="skipped"
  exit 77
}

namespaces=(unshare --mount --propagation private --uts --ipc --pid --fork --kill-child=KILL)

require_permission() {
  [ "$(id -u)" -eq 0 ] || skip "it takes root"
  local distribution
  distribution=$(. /etc/os-release && echo "${ID:-}")
  [ "$distribution" = debian ] || skip "its apt sources are not Debian's (/etc/os-release says ID=$distribution)"
  local tool why
  for tool in mmdebstrap unshare setpriv pivot_root perl flock; do
    command -v "$tool" >/dev/null || skip "there is no $tool (packages: mmdebstrap, util-linux, perl-base)"
  done
  why=$("${namespaces[@]}" --net --mount-proc true 2>&1) || skip "namespaces are not permitted ($why)"
  why=$("${namespaces[@]}" chroot / true 2>&1) || skip "chroot is not permitted ($why)"
}

namespace_parent=

# in_namespaces <option of unshare>... -- <command>...: in the background, so that a signal to this script is heeded at once; without
# it, its namespaces end too.
in_namespaces() {
  local options=()
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  env --default-signal=INT,QUIT setpriv --pdeathsig KILL "${namespaces[@]}" "${options[@]}" "$@" <&0 &
  namespace_parent=$!
  local code=0
  wait "$namespace_parent" || code=$?
  namespace_parent=
  return "$code"
}

# Ends what runs in the namespaces: when its process 1 is killed, the kernel ends the others before that one's parent hears of it.
end_namespaces() {
  [ -n "$namespace_parent" ] || return 0
  local status
  for status in $(grep -ls "^PPid:[[:space:]]*$namespace_parent\$" /proc/[0-9]*/status); do
    status=${status#/proc/}
    kill -KILL "${status%/status}" 2>/dev/null || true
  done
  wait "$namespace_parent" 2>/dev/null || true
}

# Deletes a directory in $roots, but never while a mount of any process lies in it.
delete_root() {
  if grep -qs -- "$1" /proc/[0-9]*/mountinfo; then
    echo "$0: left $1 alone, because something of it is still mounted" >&2
  else
    rm -rf --one-file-system -- "$1"
  fi
}

# Of runs that were killed. The lock is held by a run and by everything in its namespaces.
delete_abandoned_roots() {
  local directory
  for directory in "$roots"/*; do
    [ -e "$directory" ] || continue
    if [ ! -e "$directory/lock" ] || (exec 7<"$directory/lock" && flock -n 7); then delete_root "$directory"; fi
  done
}

# Sets $work, a new directory, and locks it. Only one run at a time, so that none takes another's new directory for abandoned.
make_work_directory() {
  mkdir -p "$roots"
  # Whoever owns it could put links in the way of what root writes there.
  [ "$(stat -c '%u %F' "$roots")" = "0 directory" ] || stop 1 "$roots is no directory of root's; remove it, or set TMPDIR"
  exec 8>"$roots/.lock"
  flock 8
  delete_abandoned_roots
  work=$(mktemp -d "$roots/XXXXXXXX")
  exec 9>"$work/lock"
  flock 9
  exec 8>&-
}

# Whether a root and what is built in it, four of them at once, fit into memory.
in_memory() {
  local needed=$((16 << 20)) limit
  [ "$(awk '$1 == "MemAvailable:" {print $2}' /proc/meminfo)" -ge "$needed" ] || return 1
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null) || limit=max
  [ "$limit" = max ] || [ "$limit" -ge $((needed << 10)) ]
}

# What stands between // and @ in an address is a credential.
without_credentials() { sed -E 's#//[^/@[:space:]"]*@#//#g'; }

# This machine's apt sources, settings and keys, in the directory $1. Keys are public; certificates are the authorities'.
collect_apt_settings() {
  local file
  mkdir -p "$1/sources" "$1/files/etc/apt"
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    if [ -s "$file" ]; then without_credentials <"$file" >"$1/sources/${file##*/}"; fi
  done
  {
    apt-config dump | grep -E '^Acquire::(https?|ftp|Check|Force|Retries|Allow|Max)' |
      grep -viE 'Proxy-Auto|SslKey|SslCert|Password|Token|User' || true
    [ -z "${http_proxy:-}" ] || echo "Acquire::http::Proxy \"$http_proxy\";"
    [ -z "${https_proxy:-}" ] || echo "Acquire::https::Proxy \"$https_proxy\";"
    echo 'Acquire::Languages "none";'
  } | without_credentials >"$1/settings"
  local keys=(/etc/apt/keyrings /etc/apt/trusted.gpg.d /etc/apt/preferences /etc/apt/preferences.d
    /etc/ssl/certs/ca-certificates.crt /usr/local/share/ca-certificates)
  while read -r file; do keys+=("$file"); done < <(sed -nE 's#^(Signed-By:|.*signed-by=)[[:space:]]*(/[^] ]+).*#\2#p' "$1"/sources/*)
  while read -r file; do keys+=("$file"); done < <(sed -nE 's#^Acquire::.*CA(Info|Path) "(.+)";#\2#p' "$1/settings")
  for file in "${keys[@]}"; do
    [ ! -e "$file" ] || (cd / && cp -a --parents --dereference ".$file" "$1/files/")
  done
}

# install_root <codename>: what every package's own scripts make of it, in $root.
install_root() {
  local packages=()
  [ -z "$include" ] || packages=("--include=$include")
  in_namespaces --mount-proc -- mmdebstrap --mode=root --variant=minbase --format=directory --quiet \
    --skip=check/signed-by,check/empty,essential/unlink,cleanup/apt "${packages[@]}" \
    --aptopt="$work/apt/settings" --dpkgopt=force-unsafe-io \
    --setup-hook='mkdir -p "$1/var/cache/apt/archives"' \
    --setup-hook="cp -a '$work/apt/files/.' \"\$1/\"" \
    --setup-hook="find '$cache' -name '*.deb' -exec cp -t \"\$1/var/cache/apt/archives\" {} +" \
    "$1" "$root" "$work"/apt/sources/* ||
    stop $? "no minimal Debian could be made (mmdebstrap's exit code $?)"
  # Services never start by themselves.
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod 755 "$root/usr/sbin/policy-rc.d"
  keep_packages
  rm -f "$root"/var/cache/apt/archives/*.deb
  # Of what there is to install, only who installs more needs to know.
  [ "$network" = yes ] || rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin
}

# In $root, unpacked where one of the same is kept, else installed and kept.
make_root() {
  local codename archive
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  collect_apt_settings "$work/apt"
  mkdir -p "$cache" "$kept/roots"
  [ "$(stat -c '%u %F' "$kept/roots")" = "0 directory" ] || stop 1 "$kept/roots is no directory of root's; remove it, or set XDG_CACHE_HOME"
  find "$kept/roots" -name '*.tar' -mtime +6 -delete
  find "$kept/roots" -name '*.tar.*' -mmin +60 -delete
  archive=$kept/roots/$({
    echo "$codename $network $include"
    cat "${BASH_SOURCE[0]}" /etc/resolv.conf
    cd "$work/apt" && find . -type f -exec sha256sum {} + | sort
  } | sha256sum | head -c 32).tar
  if [ -e "$archive" ]; then
    mkdir "$root"
    ! tar -C "$root" --numeric-owner --xattrs --xattrs-include='*' -xpf "$archive" || return 0
    rm -rf --one-file-system -- "$root" "$archive"
  fi
  install_root "$codename"
  if tar -C "$root" --numeric-owner --xattrs --xattrs-include='*' -cf "$archive.$$" .; then mv "$archive.$$" "$archive"; else rm -f "$archive.$$"; fi
}

# Of each package what the root had, and nothing that two months have passed since, nor what an interrupted copy left.
keep_packages() {
  local file
  find "$cache" -name '*.deb' -mtime +60 -delete
  find "$cache" -name '*.deb.*' -mmin +60 -delete
  for file in "$root"/var/cache/apt/archives/*.deb; do
    if [ -e "$file" ] && ! cmp -s "$file" "$cache/${file##*/}"; then
      cp "$file" "$cache/${file##*/}.$$" && mv "$cache/${file##*/}.$$" "$cache/${file##*/}"
    fi
  done
}

work=
root=
at_the_end() {
  end_namespaces
  [ -n "$work" ] || return 0
  [ ! -d "$root/var/cache/apt/archives" ] || keep_packages
  ! mountpoint -q "$work/memory" || umount --lazy "$work/memory"
  delete_root "$work"
}

arguments=("$@")
include= network=no
copies=() shown=()
if [ "${1-}" = --enter ]; then enter "${@:2}"; fi
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --include) include=${2?} && shift 2 ;;
    --copy) copies+=("${2?}") && shift 2 ;;
    --read-only) shown+=("${2?}") && shift 2 ;;
    --network) network=yes && shift ;;
    --check) require_permission && echo "a minimal Debian is permitted here" && exit ;;
    *) stop 2 "unknown option '$1'; usage: minimal_root.sh [--include PACKAGES] [--copy FROM:TO] [--read-only FROM:TO] [--network] -- COMMAND" ;;
  esac
done
[ $# -gt 1 ] || stop 2 "no command; usage: minimal_root.sh [option]... -- COMMAND"
shift
require_permission
# A mount namespace of this script's own, so that its memory is free again however it ends.
[ -n "${STAGECOACH_OWN_MOUNTS-}" ] ||
  STAGECOACH_OWN_MOUNTS=yes exec unshare --mount --propagation private bash "${BASH_SOURCE[0]}" "${arguments[@]}"
unset STAGECOACH_OWN_MOUNTS

make_work_directory
mkdir "$work/memory"
chmod 755 "$work" "$work/memory"
! in_memory || mount -t tmpfs -o mode=755 memory "$work/memory"
root=$work/memory/root
echo "Making a minimal Debian in $root" >&2
make_root
[ "$network" = no ] || find "$cache" -name '*.deb' -exec cp -t "$root/var/cache/apt/archives" {} +
for copy in "${copies[@]}"; do
  mkdir -p "$(dirname "$root/${copy#*:}")"
  run cp -a --no-target-directory "${copy%%:*}" "$root/${copy#*:}"
done
net=(--net)
[ "$network" = no ] || net=()
code=0
in_namespaces "${net[@]}" -- bash "${BASH_SOURCE[0]}" --enter "$root" "$network" ${#shown[@]} "${shown[@]}" "$@" || code=$?
said_why="the command in the minimal Debian ended with exit code $code"
exit "$code"
