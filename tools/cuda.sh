#!/bin/sh
# Compiles the CUDA kernels (called by `make cuda`).
#   cuda.sh toolkit OUT DIR             writes nvcc's path and the version that its kernels need into OUT; uses $NVCC, else
#                                       nvcc in PATH or /usr/local/cuda, else fetches one into DIR
#   cuda.sh kernels TOOLKIT OUT ARCHS   compiles all kernels for the architectures ("90a" or "80 90a") into one image
set -eu

kernels=src/engine/cuda/kernels

die() { printf 'make cuda: %s\n' "$*" >&2; exit 1; }
say() { printf '%s\n' "$*" >&2; }

fetch() {
    [ -x "$1/nvidia/cu13/bin/nvcc" ] && return 0
    python3 -m pip --version >/dev/null 2>&1 ||
        die "there is no nvcc, and no pip to fetch one: install NVIDIA's CUDA toolkit (12.9 or newer), or pip, or set NVCC=path/to/nvcc"
    say "no nvcc is installed: fetching NVIDIA's compiler into $1 (220 MB, once)"
    rm -rf "$1"
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$1" \
        nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 \
        nvidia-cuda-cccl==13.0.85 >&2 ||
        die "could not get nvcc with pip: is this machine offline? Install NVIDIA's CUDA toolkit, or set NVCC=path/to/nvcc"
}

find_nvcc() {
    if [ -n "${NVCC:-}" ]; then
        command -v "$NVCC" || die "NVCC=$NVCC is not a program"
    elif command -v nvcc; then
        :
    elif [ -x /usr/local/cuda/bin/nvcc ]; then
        echo /usr/local/cuda/bin/nvcc
    else
        fetch "$1"
        echo "$1/nvidia/cu13/bin/nvcc"
    fi
}

# Kernels of CUDA 13.x run with drivers of 13.0 or newer; the host code needs the interface of 12.9.
toolkit() {
    nvcc=$(find_nvcc "$2")
    release=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    [ -n "$release" ] || die "$nvcc --version does not tell its release"
    # shellcheck disable=SC2086  # two words
    set -- "$1" $release
    [ "$2" -gt 12 ] || [ "$2.$3" = 12.9 ] || die "$nvcc is of CUDA $2.$3: radish needs CUDA 12.9 or newer"
    if [ "$2" -gt 12 ]; then version=${2}000; else version=12090; fi
    mkdir -p "$(dirname "$1")"
    printf '%s\n%s\n' "$nvcc" "$version" >"$1.new"
    if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}

# nvcc's log has two lines for each kernel: "Compiling entry function 'NAME' for 'sm_90a'", then "... 0 bytes spill stores,
# 0 bytes spill loads".
check_spills() {
    status=0
    awk '/Compiling entry function/ { n_kernels++; name = $0; sub(/.*entry function /, "", name) }
         /bytes spill stores/ { n_told++ }
         /bytes spill stores/ && !/ 0 bytes spill stores, 0 bytes spill loads/ { print "  " name ":" $0; bad = 1 }
         END { exit bad ? 1 : n_kernels == 0 || n_told < n_kernels ? 2 : 0 }' "$1" >&2 || status=$?
    case $status in
    0) ;;
    1) die "kernels spill registers" ;;
    *) die "nvcc's log ($1) does not report register spills for every kernel: has -Xptxas -v changed?" ;;
    esac
}

# One source file that includes all others gives one image.
kernels() {
    nvcc=$(head -n 1 "$1")
    out=$2
    set -- $3
    flags=
    for arch in "$@"; do
        flags="$flags -gencode arch=compute_$arch,code=sm_$arch"
        # Devices that are newer than all of these compile this one when they load it.
        [ "$arch" != 80 ] || flags="$flags -gencode arch=compute_80,code=compute_80"
    done
    for file in "$kernels"/*.cu; do
        [ -f "$file" ] || die "$kernels has no kernels"
        printf '#include "%s"\n' "${file#src/}"
    done >"$out.cu"
    # shellcheck disable=SC2086  # a list of flags
    if ! "$nvcc" -std=c++17 -O3 -fmad=false -Isrc --threads 0 $flags -Xptxas -v -MD -MP -MF "$out.d" -MT "$out" -fatbin "$out.cu" -o "$out.part" \
        >"$out.log" 2>&1; then
        grep -v '^ptxas info' "$out.log" >&2
        die "nvcc failed"
    fi
    grep -E 'warning|error' "$out.log" >&2 || true
    check_spills "$out.log"
    mv "$out.part" "$out"
}

case ${1:-} in
toolkit) toolkit "$2" "$3" ;;
kernels) kernels "$2" "$3" "$4" ;;
*) die "usage: cuda.sh toolkit OUT DIR | kernels TOOLKIT OUT ARCHS" ;;
esac
