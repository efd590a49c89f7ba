#!/bin/sh
# install.sh SOURCE TARGET: Sartor with what a real federation needs, in a virtual environment of its own.
# The Containerfile, the systemd units' host and `make deploy-check` all use this. It needs no compiler, and what it
# leaves has no pip: nothing can be installed into it later.
set -eu
source=$1
target=$2
python3 -m venv "$target"
"$target/bin/python" -m pip install --quiet --no-cache-dir --prefer-binary \
    --constraint "$source/constraints.txt" "$source[nvflare,privacy,fast]"
"$target/bin/python" -m pip uninstall --quiet --yes pip
# Compiled now: where the root is read-only, every start would compile anew.
"$target/bin/python" -m compileall -qq -j 0 "$target/lib" || true  # some packages ship files of other Python versions
