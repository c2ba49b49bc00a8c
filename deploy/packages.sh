# Sourced by quickstart.sh and test.sh: installs the Debian packages that are missing, or says which; and from then on a command that
# fails and ends the script is named.

set -o errtrace
trap 'code=$?; echo "$0: \"$BASH_COMMAND\" failed with exit code $code (${BASH_SOURCE[0]}, line $LINENO)" >&2; exit $code' ERR

stagecoach_packages=(
  g++ cmake ninja-build pkg-config
  openmpi-bin libopenmpi-dev protobuf-compiler libprotobuf-dev libabsl-dev libtbb-dev libhwloc-dev
  libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev libpcre2-dev libbenchmark-dev
)
# For the test suite alone: the Arm kernels are compiled for it and run by an emulator, with Googletest built from its source.
stagecoach_test_packages=(googletest g++-aarch64-linux-gnu qemu-user-static)

install_missing_packages() {
  local missing=() package
  local installed
  # dpkg-query answers 1 for a package that it has never heard of, which on a fresh machine is the ordinary case.
  installed=$({ dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${stagecoach_packages[@]}" 2>/dev/null || true; } |
    awk '$2 == "installed" {print $1}')
  for package in "${stagecoach_packages[@]}"; do
    grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0

  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null || { [ -t 0 ] && command -v sudo >/dev/null; }; then
      sudo=(sudo)
    else
      echo "Missing packages; install them, then run this again:" >&2
      echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
  fi
  echo "Installing: ${missing[*]}" >&2
  "${sudo[@]}" apt-get update -qq >&2
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}
