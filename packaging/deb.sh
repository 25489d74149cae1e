#!/bin/sh
# Builds a Debian package from the files that `make install` installs: deb.sh ROOT VERSION OUT.deb
# (called by `make deb`). ROOT has them under usr/; the package's own files are added there. As for
# Debian's tools, DEBFULLNAME and DEBEMAIL are the maintainer.
set -eu
root=$1 version=$2 out=$3
here=$(dirname "$0")

maintainer="${DEBFULLNAME:-The radish authors} <${DEBEMAIL:-radish@localhost}>"

put() { install -D -m 644 "$1" "$root/$2"; }

doc=usr/share/doc/radish
mkdir -p "$root/var/lib/radish"
mv "$root/$doc/radish.conf" "$root/radish.conf"
put "$root/radish.conf" etc/radish/radish.conf
rm "$root/radish.conf"
rm "$root/$doc/LICENSE" # it is in the copyright file
put "$here/deb/copyright" $doc/copyright
put CHANGELOG.md $doc/changelog
cat > "$root/$doc/changelog.Debian" <<END
radish ($version) unstable; urgency=medium

  * Built from the sources of radish ${version%-*}, whose changes are in changelog.gz.

 -- $maintainer  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END
chmod 644 "$root/$doc/changelog.Debian"
gzip -9n "$root/$doc/changelog" "$root/$doc/changelog.Debian" "$root"/usr/share/man/man1/*.1
mkdir -p "$root/usr/share/zsh/vendor-completions"
mv "$root/usr/share/zsh/site-functions/_radish" "$root/usr/share/zsh/vendor-completions/"
rmdir "$root/usr/share/zsh/site-functions"

# The packages of the libraries that the binaries are linked with. dpkg-shlibdeps wants a source
# package around it.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/debian"
printf 'Source: radish\n\nPackage: radish\nArchitecture: any\n' > "$work/debian/control"
libraries=$(cd "$work" && find "$root/usr/bin" "$root/usr/lib" -type f \( -perm -100 -o -name '*.so' \) \
                -exec dpkg-shlibdeps -O {} + 2>"$work/log" | sed -n 's/^shlibs:Depends=//p') || true
[ -n "$libraries" ] || { cat "$work/log" >&2; exit 1; }

install -d "$root/DEBIAN"
for script in postinst prerm postrm; do install -m 755 "$here/deb/$script" "$root/DEBIAN/$script"; done
echo /etc/radish/radish.conf > "$root/DEBIAN/conffiles"
(cd "$root" && find usr etc -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) > "$root/DEBIAN/md5sums"
chmod 644 "$root/DEBIAN/conffiles" "$root/DEBIAN/md5sums"
size=$(du -sk --exclude=DEBIAN "$root" | cut -f1)
sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$(dpkg --print-architecture)/; s/@SIZE@/$size/" \
    -e "s/@LIBRARIES@/$libraries/; s/@MAINTAINER@/$maintainer/" "$here/deb/control" > "$root/DEBIAN/control"
dpkg-deb --root-owner-group -Zxz --build "$root" "$out" >/dev/null
echo "$out"
