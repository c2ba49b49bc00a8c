#!/usr/bin/env bash
# Within the minimal root: installs the package, and runs what it has.
set -euo pipefail
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# dpkg refuses a package whose dependencies are not there.
dpkg -i /opt/stagecoach.deb >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log >&2; fail "the package cannot be installed"; }
version=$(dpkg-query -W -f='${Version}' stagecoach)
coordinator --version | grep -qwF "$version" || fail "the package is $version, the program says: $(coordinator --version)"
dpkg -L stagecoach >/tmp/files
for file in /usr/bin/coordinator /usr/bin/stage_worker /usr/share/man/man1/coordinator-serve.1 /usr/share/man/man1/stage_worker.1 \
  /usr/share/bash-completion/completions/coordinator /usr/share/zsh/site-functions/_coordinator \
  /usr/share/fish/vendor_completions.d/coordinator.fish /usr/share/doc/stagecoach/copyright \
  /usr/share/doc/stagecoach/examples/slurm/pipeline.sbatch /usr/share/doc/stagecoach/examples/modules/stagecoach; do
  grep -qxF "$file" /tmp/files || fail "the package lacks $file"
done
! grep -vE '^/(\.|usr(/(bin|share)(/.*)?)?)$' /tmp/files || fail "the package has a file elsewhere"

text=$(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  coordinator generate -m /srv/models/demo.gguf --pp 2 -t 1 --raw -p "In the beginning God created" -n 8 -q </dev/null)
[[ $text == *" the heaven and the earth"* ]] || fail "the text is '$text'"

# The modulefile, of programs that are elsewhere.
mkdir -p /opt/modules/stagecoach /opt/elsewhere/bin
sed 's#^set prefix .*#set prefix /opt/elsewhere#' /usr/share/doc/stagecoach/examples/modules/stagecoach >/opt/modules/stagecoach/"$version"
ln -s /usr/bin/coordinator /opt/elsewhere/bin/
set +u # Modules' own script
source /usr/share/modules/init/bash
set -u
module use /opt/modules
before=$PATH:${MANPATH-}
module load stagecoach
[ "$(type -P coordinator)" = /opt/elsewhere/bin/coordinator ] || fail "after module load, coordinator is $(type -P coordinator)"
[[ $MANPATH == /opt/elsewhere/share/man:* && $STAGECOACH_BIN == /opt/elsewhere/bin ]] || fail "MANPATH is $MANPATH"
module help stagecoach 2>&1 | grep -q 'man coordinator' || fail "module help says nothing"
module unload stagecoach
[ "$PATH:${MANPATH-}" = "$before" ] && [ -z "${STAGECOACH_BIN-}" ] || fail "module unload leaves $PATH:${MANPATH-} where $before was"
echo "package: version $version, $(wc -l </tmp/files) files, prints$text"
