# Sourced after last_words.sh: the Debian packages that the scripts here need, and their installation.

# What building and running the two programs takes.
run_packages=(
  g++ cmake ninja-build pkg-config
  openmpi-bin libopenmpi-dev protobuf-compiler libprotobuf-dev libabsl-dev libtbb-dev libhwloc-dev
  libcli11-dev nlohmann-json3-dev libedit-dev libboost-dev
)
# What the test suite adds.
test_packages=(libgtest-dev libgmock-dev libpcre2-dev libbenchmark-dev curl python3 python3-jsonschema)
# What the tests with a label need beyond that. Nothing here may bring a daemon.
cross_packages=(googletest g++-aarch64-linux-gnu qemu-user-static) # Arm kernels in an emulator; GoogleTest from its source
tidy_packages=(clang-tidy git)                                     # clang-tidy over the changed files
sanitizer_packages=(clang lld libclang-rt-14-dev)                  # libFuzzer, and the trees with sanitizers
hosts_packages=(iproute2)                                          # several hosts on this machine, in network namespaces
install_packages=(groff-base)                                      # manual pages, looked at
campaign_packages=(mmdebstrap)                                     # long measurements
fresh_packages=(mmdebstrap dpkg-dev file)                          # a minimal Debian to try the two commands in, and the package
client_packages=()                                                 # clients from npm,
command -v npm >/dev/null || client_packages+=(npm)                # where it lacks: Debian's cannot be installed beside another
cache_packages=(ccache)                                            # the whole suite compiles much in four trees and every clone

# install_missing_packages <package>...: as root or with sudo; otherwise the one line that is to be run first, and exit code 1.
install_missing_packages() {
  local missing=() package installed
  # dpkg-query answers 1 for a package that it has never heard of, which on a fresh machine is the ordinary case.
  installed=$({ dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true; } | awk '$2 == "installed" {print $1}')
  for package in "$@"; do
    grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    # Without a terminal, sudo that asks for a password would hang.
    if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
      sudo=(sudo)
    else
      echo "Missing packages; install them, then run this again:" >&2
      echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
      stop 1 "packages are missing"
    fi
  fi
  echo "Installing: ${missing[*]}" >&2
  run "${sudo[@]}" apt-get update -qq >&2
  run "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}
