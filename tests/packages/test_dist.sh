#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# `make dist` makes the same bytes from the same commit in any folder, at any time and by any user, and includes every file.
set -euo pipefail
root=${VIADUCT_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
git -c safe.directory='*' -C "$root" rev-parse HEAD >/dev/null 2>&1 || { echo "skipped: no git repository" && exit 77; }
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Two clones, with another umask, time zone, locale and user name.
git clone -q --no-hardlinks "$root" "$folder/one"
(umask 077 && git clone -q --no-hardlinks "$root" "$folder/another-name")
make -s -C "$folder/one" dist >"$folder/first"
sleep 1.1
(umask 027 && TZ=Asia/Tokyo LC_ALL=C USER=other make -s -C "$folder/another-name" dist >"$folder/second")
cmp "$folder/first" "$folder/second"
cmp "$folder"/one/build/viaduct-*.tar.gz "$folder"/another-name/build/viaduct-*.tar.gz
tar tzf "$folder"/one/build/viaduct-*.tar.gz | sed 's,^[^/]*/,,' | grep -v '/$\|^$' | sort >"$folder/packed"
git -C "$folder/one" -c core.quotePath=off ls-files | sort | cmp - "$folder/packed"
# The folder in it is named for the version, and it builds its list of targets.
tar xzf "$folder"/one/build/viaduct-*.tar.gz -C "$folder"
make -s -C "$folder"/viaduct-*/ help | grep 'make dist' >/dev/null
