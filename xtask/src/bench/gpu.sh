#!/bin/sh
# Runs the suite in this folder on a machine with an NVIDIA GPU; results go to the folder `results` or to $1.
# Needs python3 with onnxruntime and NVIDIA's libraries (the dependencies of mlx-cuda-13); with torch, its networks too.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
results=${1:-$here/results}
mkdir -p "$results"
nvidia=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])')
runtime=$(python3 -c 'import glob, onnxruntime, os; print(glob.glob(os.path.dirname(onnxruntime.__file__) + "/capi/libonnxruntime.so*")[0])')
if [ -e "$nvidia/cu13/include/cuda_fp16.h" ]; then export CUDA_HOME="$nvidia/cu13"; fi
libraries=$here/mlx/lib
for folder in "$nvidia"/*/lib; do libraries=$libraries:$folder; done
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export ORT_DYLIB_PATH="$runtime" ORT_MLX_LIBRARY="$here/bin/libonnxruntime_mlx_ep.so"
export MLX_ENABLE_TF32=0 MLX_ENABLE_CACHE_THRASHING_CHECK=0 MLX_MAX_OPS_PER_BUFFER=16
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"$here/bin/run_path" "--json=$results/run_path.jsonl"
if python3 -c 'import torch' 2>/dev/null; then
    python3 "$here/torch_peer.py" "$results/run_path.jsonl"
fi
for bench in ${BENCHES:-selective_scan_gpu attention_gpu}; do "$here/bin/$bench"; done
