#!/bin/sh
# Fails, with names, if a binary needs a newer glibc than VERSION, or a library that is not glibc's.
#   needs.sh VERSION FILE...     for example needs.sh 2.31 radish
set -eu
most=$1
shift
status=0
for file in "$@"; do
    libraries=$(objdump -p "$file" | awk '$1 == "NEEDED" { print $2 }' |
                    grep -vxE 'lib(c|m|dl|rt|pthread)\.so\.[0-9]+|ld-linux-.*' | tr '\n' ' ' || true)
    [ -z "$libraries" ] || { echo "$file needs shared libraries that not every machine has: ${libraries% }" >&2; status=1; }
    # "GLIBC_2.34 pthread_create", one for each symbol that another file defines.
    symbols=$(objdump -T "$file" | awk -v most="$most" '
        $4 == "*UND*" || $3 == "*UND*" {
            version = $(NF - 1); gsub(/[()]/, "", version)
            if (version !~ /^GLIBC_/) next
            n = split(substr(version, 7), have, "."); split(most, may, ".")
            if (n < 2 || version == "GLIBC_PRIVATE" || have[1] > may[1] + 0 || (have[1] == may[1] && have[2] + 0 > may[2] + 0))
                printf " %s@%s", $NF, version
        }')
    [ -z "$symbols" ] || { echo "$file needs a newer glibc than $most, for:$symbols" >&2; status=1; }
done
exit $status
