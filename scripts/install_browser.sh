#!/usr/bin/env bash
# Debian's Chromium and its driver, for the test that opens a report in a real browser. Does nothing where both are there.
set -euo pipefail
if command -v chromium > /dev/null && command -v chromedriver > /dev/null; then
    exit 0
fi
if ! command -v apt-get > /dev/null; then
    echo "no apt-get here: install chromium and chromedriver with your own package manager" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends chromium chromium-driver > /dev/null
