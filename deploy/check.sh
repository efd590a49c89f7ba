#!/bin/sh
# check.sh WORK: the Containerfile's steps without an image builder. Its files are copied and its install.sh is run by a
# user without rights; then a federation's kits are made and its server is started as user 10001 in a root that is
# read-only but for an empty folder in place of /tmp, and the kits. Needs root (for the mounts) and util-linux; WORK is a new folder.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir "$1"
work=$(cd "$1" && pwd)
mkdir -p "$work/src/deploy" "$work/opt" "$work/home" "$work/kits" "$work/tmp"
cp "$here/pyproject.toml" "$here/constraints.txt" "$here/README.md" "$here/LICENSE" "$work/src/"
cp -r "$here/sartor" "$work/src/sartor"
cp "$here/deploy/install.sh" "$work/src/deploy/"
chown -R 10001:10001 "$work"
umask 022
as_user="setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs"
cd "$work"
HOME=$work/home $as_user sh src/deploy/install.sh "$work/src" "$work/opt/sartor"
chown -R root:root "$work/opt"
echo "installed: $(du -sm "$work/opt" | cut -f1) MB"

cat > "$work/inside.sh" <<'INSIDE'
set -eu
mount --make-rprivate /
mount --bind "$work/kits" "$work/kits"
mount -o remount,bind,ro /
mount -t tmpfs -o mode=1777 tmpfs "$work/tmp"
export HOME="$work/tmp" TMPDIR="$work/tmp" PATH="$work/opt/sartor/bin:$PATH" PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
unset PYTHONPATH
cd "$work/kits"
exec setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set=-all sh "$work/user.sh"
INSIDE
cat > "$work/user.sh" <<'USER'
set -eu
if touch "$work/opt/x" /usr/x 2>/dev/null; then echo "the root is writable"; exit 1; fi
if python3 -m pip --version 2>/dev/null; then echo "pip was left in the environment"; exit 1; fi
sartor --version
sartor federation init --name trial --server localhost:$port --sites a,b --out all >/dev/null
printf 'method = "flame"\nrounds = 2\n' > recipe.toml
sartor server all/server --recipe recipe.toml --health-port $health --log json > said.jsonl &
server=$!
ask='import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read().decode(), end="")'
while kill -0 $server; do
    found=$(python3 -c "$ask" http://127.0.0.1:$health/healthz 2>/dev/null || true)
    case $found in "waiting for sites: a, b") break ;; esac
    sleep 1
done
echo "healthz: $found"
python3 -c "$ask" http://127.0.0.1:$health/metrics | grep -E '^sartor_(info|memory_bytes)'
kill $server
sartor federation backup all/server --out server.backup
USER
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
health=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export work port health
unshare --mount sh "$work/inside.sh"
echo "passed"
