#!/bin/sh
# Runs every test and ends with one line of totals: run.sh BUILD MODEL (called by `make test`).
set -u
build=$1
model=$2
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# A part that crashes prints no totals; the awk script counts that as a failure.
part() {
    printf '== %s\n' "$1"
    shift
    { "$@" 2>&1 || echo "a part ended with an error"; } | tee -a "$log"
}

export RADISH_TEST_MODEL="$model"
export RADISH_BUILD="$build"
part "unit tests, address and undefined-behaviour sanitizers" "$build/unit"
part "unit tests of threads, thread sanitizer" "$build/unit-tsan" threads
part "end to end" "$build/venv/bin/python" -m pytest -q -rs -p no:cacheprovider tests/e2e bench tools

# Sums "N passed", "N failed", "N error(s)" and "N skipped" over all parts.
awk '
/[0-9]+ (passed|failed|skipped|errors?)/ && /passed|failed/ {
    n = split($0, words, /[ ,]+/)
    for (i = 2; i <= n; i++) {
        if (words[i] == "passed") passed += words[i - 1]
        if (words[i] == "failed" || words[i] ~ /^errors?$/) failed += words[i - 1]
        if (words[i] == "skipped") skipped += words[i - 1]
    }
    parts++
}
/^a part ended with an error$/ { broken++ }
END {
    if (broken && !failed) failed = broken
    if (parts != 3) { failed++; print "a part of the tests did not finish" }
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit failed > 0
}' "$log"
