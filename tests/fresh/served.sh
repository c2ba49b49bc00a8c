#!/usr/bin/env bash
# The Debian package of a build, and the server as its operators meet it: by its systemd unit's command, behind nginx with TLS, read by
# Prometheus' tools, asked by curl, in a minimal Debian that has what the package depends on, these, and nothing else.
# Usage: served.sh <build directory> <demo model>. Exit code 77, and the reason, where this machine does not permit a minimal Debian or
# cannot have the packages.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit
source "$here/../../deploy/last_words.sh"
build=$1 model=$2
work=$(mktemp -d)
at_the_end() { rm -rf "$work"; }
skip() {
  echo "SKIPPED: $*" >&2
  said_why="skipped"
  exit 77
}

code=0
"$here/minimal_root.sh" --check || code=$?
[ "$code" -eq 0 ] || { said_why="skipped" && exit "$code"; }
for tool in dpkg-shlibdeps file; do command -v "$tool" >/dev/null || skip "there is no $tool (packages: dpkg-dev, file)"; done
run cpack --config "$build/CPackConfig.cmake" -B "$work/package" >"$work/log"
package=$(echo "$work"/package/*.deb)
dpkg-deb -I "$package"
depends=$(dpkg-deb -f "$package" Depends | sed -E 's/ *\([^)]*\)//g; s/ *\|[^,]*//g; s/ //g')
# A name that does not exist would look like a minimal Debian that cannot be made.
for name in ${depends//,/ }; do
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" == *installed ]] ||
    stop 1 "the package depends on '$name', which is not installed where it was made"
done

"$here/minimal_root.sh" \
  --include "$depends,curl,jq,openssl,nginx-light,systemd,prometheus,environment-modules" \
  --copy "$package:/opt/stagecoach.deb" --copy "$here/as_a_package_user.sh:/opt/as_a_package_user.sh" \
  --copy "$model:/srv/models/demo.gguf" --copy "$here/as_an_operator.sh:/opt/as_an_operator.sh" --copy "$here/../../deploy:/opt/deploy" \
  -- bash -c 'echo serving && bash /opt/as_a_package_user.sh && bash /opt/as_an_operator.sh' | tee "$work/said" || code=$?
if [ "$code" -ne 0 ] && [ "$code" -ne 77 ] && ! grep -q '^serving' "$work/said"; then
  skip "no minimal Debian with nginx and Prometheus could be made; what stood in the way is said above"
fi
said_why="the package and its server: exit code $code"
exit "$code"
