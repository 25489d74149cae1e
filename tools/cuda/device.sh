#!/bin/sh
# Tests and measures the CUDA engine on this machine's GPU:
#
#   tools/cuda/device.sh FOLDER [PART ...]
#
# Runs in the root of the sources, after `make cuda build/cuda_tests build/bench_cuda` (with STATIC=1 and BUILD= if it was
# built elsewhere). Full logs go into FOLDER; a short table is printed last. Parts: tests, sanitizer, bench, long; all of them
# but `long` if none is named. The environment may set BUILD, SHAPES, TYPES and WHAT for the benchmark.
set -u

[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$1
shift
parts=${*:-tests sanitizer bench}
build=${BUILD:-build}
plugin=$build/radish-cuda.so
failed=0
mkdir -p "$out"
summary=$out/summary.txt
: >"$summary"

say() { printf '%s\n' "$*" >>"$summary"; }

for file in "$plugin" "$build/cuda_tests" "$build/bench_cuda"; do
    [ -e "$file" ] || { echo "device.sh: there is no $file: make cuda build/cuda_tests build/bench_cuda" >&2; exit 2; }
done
export RADISH_BUILD="$build"
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem --format=csv,noheader \
    >"$out/device.txt" 2>&1 || echo "nvidia-smi: none" >"$out/device.txt"
say "$(head -n 1 "$out/device.txt")"

# NAME LOG COMMAND...: runs it; the summary gets its last line.
run() {
    name=$1 log=$2
    shift 2
    begin=$(date +%s)
    if "$@" >"$log" 2>&1; then state=ok; else state="FAILED ($?)" failed=1; fi
    say "$(printf '%-12s %-12s %4d s  %s' "$name" "$state" $(($(date +%s) - begin)) "$(tail -n 1 "$log")")"
}

tests() {
    for suite in io. shapes. models. bits.; do
        run "${suite%.}" "$out/tests-${suite%.}.txt" "$build/cuda_tests" "$plugin" "$suite"
    done
    grep -h 'FAILED\|TOO FAR\|refused\|^tests/' "$out"/tests-*.txt | sed 's/^/    /' >>"$summary"
}

# Races and bad accesses on what is small, and bad accesses with large matrices.
sanitizer() {
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
    [ -n "$tool" ] || { say "sanitizer    skipped: there is no compute-sanitizer"; return; }
    for check in memcheck racecheck synccheck initcheck; do
        if [ "$check" = memcheck ]; then large=io.many_outputs; else large=; fi
        run "$check" "$out/sanitizer-$check.txt" "$tool" --tool "$check" --error-exitcode 9 --print-limit 20 \
            "$build/cuda_tests" "$plugin" models.llama3 models.gpt_oss models.qwen3_moe io.pages $large
    done
    grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$out"/sanitizer-*.txt | sed 's/^/    /' >>"$summary"
}

bench() {
    for shape in ${SHAPES:-llama8b llama1b qwen30b-a3b}; do
        for type in ${TYPES:-q4_k_m q8_0 bf16 mxfp4}; do
            log=$out/bench-$shape-$type.txt
            run "bench" "$log" "$build/bench_cuda" --so "$plugin" --shape "$shape" --type "$type" --what "$1"
            sed 's/^/    /' "$log" >>"$summary"
        done
    done
}

for part in $parts; do
    case $part in
    tests) tests ;;
    sanitizer) sanitizer ;;
    bench) bench "${WHAT:-decode,prefill}" ;;
    long) bench long ;;
    *) echo "device.sh: no part is called $part" >&2; exit 2 ;;
    esac
done
cat "$summary"
exit $failed
