#!/bin/sh
# Makes sure that the tests of the report page have a browser: finds one, or installs Debian's Chromium where that is
# allowed. Without one these tests are skipped, so this never fails; it says what happened.
if [ -n "${MLAP_BROWSER:-}" ]; then
  echo "browser: $MLAP_BROWSER (from MLAP_BROWSER)"
  exit 0
fi
for name in chromium chromium-browser google-chrome google-chrome-stable; do
  if command -v "$name" > /dev/null; then
    echo "browser: $(command -v "$name")"
    exit 0
  fi
done
if ! [ -f /etc/debian_version ] || ! command -v apt-get > /dev/null; then
  echo "browser: none found, and none to be installed by apt-get; put chromium in PATH (browser tests are skipped)"
elif [ "$(id -u)" != 0 ]; then
  echo "browser: none found; as root: apt-get install chromium (browser tests are skipped)"
else
  echo "browser: none found, installing Debian's chromium …"
  log=$(mktemp)
  export DEBIAN_FRONTEND=noninteractive
  if { apt-get update && apt-get install -y --no-install-recommends chromium; } > "$log" 2>&1; then
    echo "browser: $(command -v chromium)"
  else
    echo "browser: chromium could not be installed, see $log (browser tests are skipped)"
  fi
fi
