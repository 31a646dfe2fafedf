# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# "viaduct sim" runs the simulator with the words that are left, wherever it was installed, and says so when it is not.
set -eu
bin=$VIADUCT_BUILD_DIR

fail() {
    echo "FAILED: $*"
    exit 1
}

[ "$("$bin/viaduct" sim plants)" = "$("$bin/viaduct-sim" plants)" ] || fail "plants differ"
"$bin/viaduct" sim seed 3 --graph ring | grep -qx ok || fail "a seed with options"
"$bin/viaduct" sim --help | grep -q '^Usage: viaduct-sim' || fail "help"
"$bin/viaduct" help sim | grep -q '^Usage: viaduct-sim' || fail "help sim"
if text=$("$bin/viaduct" sim seed x 2>&1); then
    fail "a bad seed is accepted"
elif [ $? -ne 2 ]; then
    fail "a bad seed: exit code is not 2: $text"
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/bin" "$folder/libexec/viaduct"
cp "$bin/viaduct" "$folder/bin/"
if text=$(PATH=/usr/bin:/bin "$folder/bin/viaduct" sim plants 2>&1); then
    fail "there is no simulator, and the command succeeds"
elif [ $? -ne 1 ]; then
    fail "without a simulator: exit code is not 1"
fi
printf '%s\n' "$text" | grep -q "^viaduct sim: viaduct-sim: find: neither in $folder/bin, " ||
    fail "without a simulator it says only '$text'"
ln "$bin/viaduct-sim" "$folder/libexec/viaduct/" 2>/dev/null || cp "$bin/viaduct-sim" "$folder/libexec/viaduct/"
PATH=/usr/bin:/bin "$folder/bin/viaduct" sim plants | grep -q '^lost-put ' || fail "libexec is not looked at"
