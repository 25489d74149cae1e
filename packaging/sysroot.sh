#!/bin/sh
# Makes DIR, what `make dist` compiles and links with: headers and stubs of glibc 2.31, and this machine's static
# libraries. Needs Debian or Ubuntu, but no root rights. Does nothing if DIR is up to date.
#   sysroot.sh DIR
set -eu
dir=$1
libraries=$("$(dirname "$0")/../tools/setup.sh" static)

die() { printf 'make dist: %s\n' "$*" >&2; exit 1; }

# The release that has glibc 2.31: its packages come from where this machine gets its own.
# shellcheck source=/dev/null
[ ! -f /etc/os-release ] || . /etc/os-release
case ${ID:-} in
debian) suite=bullseye ;;
ubuntu) suite=focal ;;
*) die "needs Debian or Ubuntu, for the packages of glibc 2.31; elsewhere, set SYSROOT to a folder that has it and the static libraries under usr/" ;;
esac
[ "$(uname -m)" = x86_64 ] || die "needs x86-64"
mirror=$(apt-cache policy libc6 | grep -v security | grep -oE '[a-z]+://[^ ]+' | head -n 1)
[ -n "$mirror" ] || die "apt does not know where libc6 comes from: run apt-get update"

# shellcheck disable=SC2086  # a list of names
versions=$(echo "libc6 of $suite"; dpkg-query -W $libraries)
[ "$(cat "$dir/versions" 2>/dev/null)" != "$versions" ] || exit 0

echo "getting glibc 2.31 ($suite) to link with" >&2
rm -rf "$dir"
mkdir -p "$dir/apt/state/lists/partial" "$dir/apt/cache/archives/partial"
dir=$(cd "$dir" && pwd)
echo "deb [signed-by=/usr/share/keyrings/$ID-archive-keyring.gpg] $mirror $suite main" >"$dir/apt/sources.list"
: >"$dir/apt/status"
get() {
    (cd "$dir/apt" && apt-get -qq -o Dir::State="$dir/apt/state" -o Dir::State::status="$dir/apt/status" \
        -o Dir::Cache="$dir/apt/cache" -o Dir::Etc::SourceList="$dir/apt/sources.list" -o Dir::Etc::SourceParts=- \
        -o APT::Architecture=amd64 -o APT::Sandbox::User= "$@" >>log 2>&1) ||
        { tail -n 3 "$dir/apt/log" >&2; die "could not get glibc 2.31: is this machine offline?"; }
}
get update
get download libc6 libc6-dev linux-libc-dev
for package in "$dir"/apt/*.deb; do dpkg-deb -x "$package" "$dir"; done

# Links to /lib would lead to this machine's C library.
find "$dir" -type l -lname '/*' | while read -r link; do ln -sfn "$dir$(readlink "$link")" "$link"; done

# shellcheck disable=SC2086
dpkg-query -L $libraries | grep -E '^/usr/include/|^/usr/lib/.*(\.a|/libcrypto\.pc)$' | while read -r file; do
    [ -d "$file" ] || { mkdir -p "$dir${file%/*}" && cp -L "$file" "$dir$file"; }
done
rm -rf "$dir/apt"
printf '%s\n' "$versions" >"$dir/versions"
