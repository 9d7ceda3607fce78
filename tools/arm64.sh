#!/usr/bin/env bash
# Builds the extension for arm64 with Debian's cross compiler and runs the tests of the kernels in an emulator.
#
# Nothing is installed: Debian's Python for arm64, and what the tests import, are unpacked in build/arm64.
set -euo pipefail
cd "$(dirname "$0")/.."

for command in aarch64-linux-gnu-g++ qemu-aarch64-static apt-get dpkg-deb; do
    command -v "$command" >/dev/null || {
        echo "make arm64 needs $command; on Debian: apt-get install g++-aarch64-linux-gnu qemu-user-static" >&2
        exit 1
    }
done

bin=$PWD/.venv/bin
out=$PWD/build/arm64
version=$("$bin/python" -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}")')

# The emulated Python. apt-get works on lists and a cache of its own, as if on a machine on which nothing is installed.
if [ ! -x "$out/root/usr/bin/$version" ]; then
    mkdir -p "$out"/apt/{state/lists,cache/archives}/partial
    : >"$out/apt/status"
    apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Debug::NoLocking=1
        -o Dir::State="$out/apt/state" -o Dir::State::status="$out/apt/status" -o Dir::Cache="$out/apt/cache")
    "${apt[@]}" update
    "${apt[@]}" install -y --no-install-recommends --download-only "$version-minimal" "lib$version-dev" libstdc++6
    for package in "$out"/apt/cache/archives/*.deb; do dpkg-deb -x "$package" "$out/root"; done
    "$bin/python" -m pip install -q --target "$out/packages" --only-binary=:all: --python-version "${version#python}" \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 numpy pytest hypothesis gguf
fi

"$bin/cmake" -G Ninja -S . -B "$out/build" --log-level=WARNING -DCMAKE_BUILD_TYPE=Release -DOCTAVO_WERROR=ON \
    -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_CXX_FLAGS="-idirafter $out/root/usr/include" \
    -DPython_EXECUTABLE="$bin/python" -DPython_INCLUDE_DIR="$out/root/usr/include/$version" \
    -DNB_SUFFIX=.so -DNB_SUFFIX_S=.so -Dnanobind_DIR="$("$bin/python" -m nanobind --cmake_dir)"
"$bin/cmake" --build "$out/build"
rm -rf "$out/site"
mkdir -p "$out/site"
cp -r src/octavo "$out/site"
"$bin/cmake" --install "$out/build" --prefix "$out/site" >/dev/null

run() { # CPU ARGUMENTS...: Python on that CPU
    PYTHONPATH="$out/site:$out/packages" QEMU_CPU=$1 \
        qemu-aarch64-static -L "$out/root" "$out/root/usr/bin/$version" "${@:2}"
}

builds='from octavo.backends.native.isa import runnable_isas; print(*runnable_isas())'
[ "$(run cortex-a72 -c "$builds")" = "baseline" ] # knows no dot products
[ "$(run neoverse-n1 -c "$builds")" = "neon_dotprod baseline" ]
# Without what takes minutes in the emulator (thousands of keys, thousands of draws) and what it does not emulate (a
# second Python, memory that the system makes resident).
run neoverse-n1 -m pytest -q -p no:cacheprovider --confcutdir=tests/backends tests/backends \
    -k "not (reference or long_sequence or 1100 or distribution or may_end or becomes_resident)" "$@"
