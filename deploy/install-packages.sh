#!/usr/bin/env bash
# Install the missing Debian packages of the list in apt-packages.txt.
#
# Without root, or on another system, the script only prints what is missing and
# succeeds, because builds and tests work without some packages. With --required, it
# fails in this case. With --to-build, it installs only the first section of the list;
# with --soak, also the last one.
set -euo pipefail

list="$(dirname "$0")/apt-packages.txt"
required=false
wanted=(sed '/^# For make soak/,$d' "$list")
for option in "$@"; do
    case "$option" in
    --required) required=true ;;
    --soak) wanted=(cat "$list") ;;
    --to-build) wanted=(sed '/^# To run /,$d' "$list") ;;
    esac
done

give_up() {
    echo "install-packages: $1" >&2
    if $required; then exit 1; else exit 0; fi
}

command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
    give_up "this system is not Debian; install the packages in $list with its package manager"

missing=()
while read -r package; do
    status="$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)"
    [[ "$status" == "install ok installed" ]] || missing+=("$package")
done < <("${wanted[@]}" | sed 's/#.*//' | awk 'NF {print $1}')
[[ ${#missing[@]} -eq 0 ]] && exit 0

[[ $EUID -eq 0 ]] ||
    give_up "missing, and this is not root: sudo apt-get install ${missing[*]}"

# Some packages start a service at installation. Prevent this, because tests start the
# services that they need.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

# Other processes, such as unattended upgrades, may hold the locks for a while, and a
# mirror may be busy. With the option below, apt-get waits for the lock of dpkg. It
# never waits for the lock of the package lists, so --required tries several times.
attempts=1
$required && attempts=5
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
for ((attempt = 1; attempt <= attempts; attempt++)); do
    { apt-get update -qq && apt-get install -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=120 "${missing[@]}"; } </dev/null >/dev/null && exit 0
    ((attempt == attempts)) || sleep $((attempt * 10))
done
give_up "apt-get could not install: ${missing[*]}"
