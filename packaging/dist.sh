#!/bin/sh
# Packs what `make install` put into FOLDER, whose name is the tarball's first folder: dist.sh FOLDER OUT.tar.gz
# (called by `make dist`). Fails if a binary needs more than glibc 2.31.
set -eu
folder=$1 out=$2
here=$(dirname "$0")
doc=$folder/share/doc/radish

die() { printf 'make dist: %s\n' "$*" >&2; exit 1; }

rm -f "$out" # of an earlier build, if this one fails

binaries=$(find "$folder/bin" "$folder/lib/radish" -type f 2>/dev/null || true)
# shellcheck disable=SC2086  # a list of files without spaces
strip --strip-unneeded $binaries
# shellcheck disable=SC2086
"$here/needs.sh" 2.31 $binaries || die "the binaries do not run everywhere"

# The libraries inside the binary ask for their licences and names to go with it.
mkdir -p "$doc/licenses"
for package in $("$here/../tools/setup.sh" static); do
    licence=/usr/share/doc/$package/copyright
    [ -f "$licence" ] || die "there is no $licence: install $package again, with its documentation"
    install -m 644 "$licence" "$doc/licenses/${package%-dev}.txt"
    # shellcheck disable=SC2016  # names of dpkg's
    dpkg-query -W -f '${source:Package} ${source:Version}\n' "$package"
done >"$doc/licenses/versions.txt"
install -m 644 /usr/share/common-licenses/Apache-2.0 "$doc/licenses/Apache-2.0.txt"
install -m 644 CHANGELOG.md "$doc"
gzip -9n "$folder"/share/man/man1/*.1

tar --create --file="$out.tar" --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
    --numeric-owner --mode=u+rwX,go+rX,go-w --directory="$(dirname "$folder")" "$(basename "$folder")"
gzip -9n <"$out.tar" >"$out.part"
rm "$out.tar"
mv "$out.part" "$out"
echo "$out"
