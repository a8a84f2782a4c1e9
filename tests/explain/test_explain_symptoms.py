"""Texts that people paste, with the kind of text and the cause that `explain` must find; other texts are refused."""

from __future__ import annotations

import pytest

from explain.build_logs import rows
from explain.test_explain_causes import FAILURES
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import MATRIX
from wheelfactory.explain.build_log import BuildLog, read_build_log
from wheelfactory.explain.causes import symptom_table
from wheelfactory.explain.explanation import DOCTOR_LINE, find_wheel_line
from wheelfactory.explain.log_lines import clean_line
from wheelfactory.matrix.load import load_matrix

TRACE = "Traceback (most recent call last):\n"
CALL = f'{TRACE}  File "/v/lib/python3.12/site-packages/flash_attn/flash_attn_interface.py", line 15, in fwd\n'
META = "Collecting flash-attn==2.8.3\n  Preparing metadata (setup.py): started\n"
BUILD = (
    f"{META}  torch.__version__  = 2.12.1+rocm7.2\n  running bdist_wheel\n  building 'flash_attn_2_cuda' extension\n"
)
COMPILE = f"{BUILD}[9/99] /opt/rocm/bin/hipcc -c -c build/fmha_fwd.hip -o x.o --offload-arch=gfx1151\nFAILED: x.o\n"
SDK = f"{BUILD}[9/99] /v/_rocm_sdk_devel/bin/hipcc -c -c csrc/flash_attn_ck/a.hip -o a.o\nFAILED: a.o\n"
CUDA_PIN = f"{META.replace('2.8.3', '2.5.6')}    torch_cuda_version = parse(torch.version.cuda)\n"
SOLVER = "  x No solution found when resolving dependencies:\n  ╰─▶ "
NONE = "(from versions: none)"
MISSING = "ERROR: Could not find a version that satisfies the requirement "
CLANG = f"clang-19 -cc1 -triple amdgcn-amd-amdhsa -O3 {'-I /w ' * 400}-x hip /w/a.hip"
RADEON = "Looking in indexes: https://repo.radeon.com/rocm/manylinux/rocm-rel-7.1/\n"


PASTED = r"""
build | C++ headers too new for this compiler | gcc-install-dir
    {COMPILE}/usr/include/c++/16/a.h:11:2: error: reference to __host__ function '__glibcxx_assert_fail' in __host__
build | C++ headers too new for this compiler | older GCC
    {COMPILE}/usr/lib/gcc/x86_64-linux-gnu/15/../../include/c++/15/type_traits:34:10: error: undeclared x
build | host compiler instead of hipcc | CXX=hipcc
    {COMPILE}x86_64-linux-gnu-g++: error: unrecognized command-line option '--offload-arch=gfx942'
    {COMPILE}gcc: error: unrecognized command-line option '-fno-gpu-rdc'
    {COMPILE}g++: error: language hip not recognized
build | hipcc of another ROCm | the ROCm of torch 2.12.1+rocm7.2
    {COMPILE}clang++: error: unknown argument: '-fno-offload-uniform-block'
build | hipcc of another ROCm | option -amdgpu-function-calls=false
    {COMPILE}clang (LLVM option parsing): Unknown command line argument '-amdgpu-function-calls=false'.
build | CK has no code for this GPU | no code for gfx1151
    {COMPILE}/w/ck/amd_buffer.hpp:48:9: error: use of undeclared identifier 'CK_BUFFER_RESOURCE_3RD_DWORD'
    {COMPILE}/w/ck_tile/mma.hpp:20:5: error: '__builtin_amdgcn_mfma_f32_32x32x8f16' needs target feature mai-insts
    {COMPILE}/w/ck_tile/atomic.hpp:66:19: error: static assertion failed due to requirement '(4 == 1)': wrong!
build | kernel does not fit the GPU | 98304 bytes of local memory (LDS), and gfx1151 has 65536
    {COMPILE}ld.lld: error: <unknown>:0:0: local memory (98304) exceeds limit (65536) in function 'k'
build | kernel does not fit the GPU | OPT_DIM
    {COMPILE}error: ran out of registers in function 'k'
    {COMPILE}error: stack frame size (164332) exceeds limit (131056) in function 'k'
build | setuptools and wheel differ | --upgrade wheel setuptools
    {META}ModuleNotFoundError: No module named 'pkg_resources'
    {META}error: invalid command 'bdist_wheel'
    {META}ModuleNotFoundError: No module named 'distutils'
build | requirement of the build is missing | psutil | {META}ImportError: No module named 'packaging'
build | release for CUDA only | flash-attn 2.5.6 may be too old
    {CUDA_PIN}TypeError: expected string or bytes-like object, got 'NoneType'
build | release for CUDA only | 2.6.3
    TypeError: expected string or bytes-like object\n  ERROR: Failed building wheel for flash_attn
build | setup.py looks for CUDA | 2.6.3 | {BUILD}OSError: CUDA_HOME environment variable is not set
build | wrong torch | not built for ROCm
    OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.
    {COMPILE}csrc/flash_attn_ck/flash_api.cpp:13:10: fatal error: 'ATen/hip/HIPContext.h' file not found
build | ROCm incomplete | rocm | clang++: error: cannot find HIP runtime; provide its path via '--rocm-path'
build | ROCm incomplete | rocm-device-libs
    lld: error: undefined hidden symbol: __oclc_ABI_version\nclang++: error: amdgcn-link command failed
build | no virtual environment | second pip for third_party/aiter
    {META}Submodule path 'third_party/aiter': checked out\nerror: externally-managed-environment
build | sources were translated for another torch | clean folder
    /w/csrc/flash_attn_ck/mha_fwd.hip:2:4: error: no member named 'getCurrentHIPStream' in namespace 'at::cuda'
build | wrong torch | --no-build-isolation
    error: subprocess-exited-with-error\nx Getting requirements to build wheel: error\nNo module named 'torch'
    Using cached flash_attn-2.8.3.tar.gz\nGetting requirements to build wheel: error\nNo module named 'torch'
build | no GPU to ask for its arch | GPU_ARCHS | {META}RuntimeError: No gfx arch found in rocminfo output
build | no GPU to ask for its arch | GPU_ARCHS
    Can't exec "/opt/rocm/bin/rocm_agent_enumerator": No such file or directory at /usr/bin/hipcc.pl line 488.
build | no GPU to ask for its arch | GPU_ARCHS | clang++: error: cannot determine hip architecture: amdgpu-arch
build | missing submodule | sdist | /w/csrc/flash_attn_ck/mha_bwd.hip:6:10: fatal error: 'fmha_bwd.hpp' file not found
build | compiler crashed | rerun
    PLEASE submit a bug report to LLVM\n0.\tProgram arguments: {CLANG}
build | CK of another commit | submodule update --init --force
    {COMPILE}/w/csrc/flash_attn_ck/mha_fwd.hip:77:12: error: no member named 'seqlen_k_ptr' in 'fmha_fwd_args'
    {COMPILE}/w/csrc/flash_attn_ck/mha_bwd.hip:12:20: error: no member named 'BlockFmha' in namespace 'ck_tile'
    {COMPILE}/w/csrc/flash_attn_ck/mha_fwd.hip:112:9: error: excess elements in struct initializer
build | ROCm's headers are missing | pip install "rocm[devel]"
    {SDK}/t/HIPContext.h:9:10: fatal error: 'hipblas/hipblas.h' file not found
build | wrong torch | --no-build-isolation
    x Failed to build `flash-attn`\nCall to `setuptools.build_meta` failed\nModuleNotFoundError: No module named 'torch'
build | no network | check network
    fatal: unable to access 'https://github.com/ROCm/composable_kernel.git/': Could not resolve host
build | no hipconfig | PATH=/opt/rocm/bin | {META}/bin/sh: 1: hipconfig: not found
build | build on Windows | ROCm in WSL | {BUILD}error: Microsoft Visual C++ 14.0 or greater is required.
build | build on Windows | WSL | {BUILD}error: [WinError 2] The system cannot find the file
build | connection broke | again | {META}fatal: unable to read: Connection reset by peer
build | no GPU to ask for its arch | GPU_ARCHS=gfx942 | #12 6.2 {META}#12 7 No HIP GPUs are available
build | out of memory | MAX_JOBS
    #9 12.0 {META}#9 ERROR: process did not complete: signal: killed
    #9 12.0 {META}ERROR: failed to solve: cannot allocate memory
build | arch refused | Triton | RuntimeError: One of GPU archs of gfx1100 is invalid or not supported
build | missing submodule | third_party/aiter` | hint: File 'third_party/aiter' does not exist.
build | no permission | noexec
    {BUILD}PermissionError: [Errno 13] Permission denied: 'build'
    /bin/sh: 1: /opt/rocm/bin/hipcc: Permission denied
build | sources too old for this torch | newer flash-attn
    {COMPILE}/t/c10/util/C++17.h:24:2: error: #error "You need C++20 to compile PyTorch"
build | sources were translated for another torch | unpack the sources again
    {COMPILE}/w/a.hip:2:4: error: no member named 'getCurrentHIPStream' in namespace 'at::hip'; did you mean
pip | Python is too old or too new | this Python 3.8.18 is not one
    ERROR: Package 'flash-attn' requires a different Python: 3.8.18 not in '>=3.9'
    {SOLVER}Because the current Python version (3.8.18) does not satisfy Python>=3.9 and flash-attn==2.8.3
pip | first index wins | explicit = true
    {SOLVER}Because only flash-attn<=2.8.3 is available\nA compatible version may be available on a subsequent index
pip | requirements with hashes | uv pip | ERROR: Hashes are required in --require-hashes mode, but
pip | not a package of conda | its pip
    PackagesNotFoundError: The following packages are not available from current channels:
    nothing provides cuda-version >=12.0 needed by flash-attn-2.8.3-py312_0
    Cannot solve the request because of: No candidates were found for flash-attn *.
pip | certificate is not trusted | PIP_CERT
    Could not fetch URL https://x/torch/: There was a problem confirming the ssl certificate: x
pip | wheel for another Python or system | pip debug --verbose
    ERROR: flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl is not a supported wheel on this platform.
    Caused by: A path dependency is incompatible with the current platform: flash_attn-2.8.3.whl
    {SOLVER}Because torch==2.9.1+rocm6.4 has no wheels with a matching Python ABI tag (e.g., `cp314`)
    Unable to find installation candidates for flash-attn (2.8.3+rocm64torch2.9triton)
pip | wheel was renamed | own name
    ERROR: Invalid wheel filename: 'flash_attn_rocm.whl'
    Caused by: The wheel filename "flash_attn-2.8.3-2.whl" is invalid: Must have a Python tag
    ERROR: flash-attn has an invalid wheel, .dist-info directory not found
    zipfile.BadZipFile: Bad magic number for file header
pip | backend unknown to this uv | whl/rocm7.1 | error: invalid value 'rocm7.1' for '--torch-backend <B>'
pip | list of files, not an index | --find-links | {RADEON}{META}{MISSING}torch==2.8.0 {NONE}
pip | index has no such version | does not have torch==2.9.1: each index of PyTorch is for one ROCm
    Looking in indexes: https://download.pytorch.org/whl/rocm6.2\n{MISSING}torch==2.9.1 (from versions: 2.5.0+rocm6.2)
pip | Triton is on torch's index | (pytorch-triton-rocm==3.4.0)
    {MISSING}pytorch-triton-rocm==3.4.0; platform_system == "Linux" (from torch) (from versions: 0.0.1)
pip | Triton is on torch's index | tool.uv.sources
    {SOLVER}Because triton-rocm was not found in the package registry and torch==2.13.0+rocm7.2 depends on
    {SOLVER}Because there is no version of pytorch-triton-rocm{{python_full_version < '3.13'}}==3.1.0
    {MISSING}triton==3.5.1+rocm7.2.0.gita272dfa8 (from torch) {NONE}
pip | index has no such version | --index-url SITE/simple/
    {MISSING}flash-attn==2.8.3+rocm72torch2.13triton (from versions: 0.2.0, 2.8.3)
pip | host is not trusted | --trusted-host 192.168.1.5
    WARNING: The repository located at 192.168.1.5 is not a trusted or secure host and is\n{MISSING}flash-attn {NONE}
pip | site does not answer | http.server | Caused by: tcp connect error: Connection refused (os error 111)
pip | index has no such version | another package asks for
    {MISSING}flydsl==0.1.9.dev599 (from amd-aiter) (from versions: 0.1.0, 0.1.8)
pip | index has no such package | uv venv --python 3.12
    Looking in indexes: https://repo.amd.com/rocm/whl/gfx1151/\n{MISSING}torch {NONE}
pip | index has no such package | no torch==2.13.* | {MISSING}torch==2.13.* {NONE}
pip | index has no such package | no torch. | [CandidateNotFound]: Unable to find candidates for torch.
pip | index has no such package | no torch | {SOLVER}Because torch was not found in the package registry
pip | index of another torch | needs torch==2.13.*, and the environment has or asks for torch 2.9.1+rocm7.2
    The user requested torch==2.9.1+rocm7.2\n  flash-attn 2.8.3 depends on torch==2.13.*
pip | index of another torch | needs torch==2.13.*
    {SOLVER}Because flash-attn==2.8.3 depends on torch==2.13.* and you require torch==2.9.1
pip | index of another torch | needs torch (>=2.9,<2.10),
    So, because flash-attn (2.8.3) depends on torch (>=2.9,<2.10), version solving failed.
pip | another package pins its torch | the torch that vllm pins
    vllm 0.33 requires torch==2.14.0, but you have torch 2.13.0+rocm7.2 which is incompatible.
pip | file differs from the index | do not install it | error: Hash mismatch for `flash-attn==2.8.3`
pip | address not found | address | ERROR: HTTP error 404 while getting http://x/flash_attn.whl
pip | pip may not write there | sudo | ERROR: Could not install packages due to an OSError: [Errno 13]
import | no torch | rocm7.2 | {TRACE}ModuleNotFoundError: No module named 'torch'
import | torchvision of another torch | another torch than torch 2.8.0+rocm7.1
    pytorch version: 2.8.0+rocm7.1\n{TRACE}RuntimeError: operator torchvision::nms does not exist
import | built for another torch | two builds
    {CALL}ImportError: /v/flash_attn_2_cuda.cpython-312.so: undefined symbol: _ZN3c103hip28c10
    ImportError: DLL load failed while importing flash_attn_2_cuda: The specified module could not be found.
import | built for another Python | the doctor | ImportError: /v/x.so: undefined symbol: _PyGen_Send
import | built for CUDA | CUDA | {CALL}ImportError: libcudart.so.12: cannot open shared object file
import | torch is not built for ROCm | CPUs | OSError: libtorch_hip.so: cannot open shared object
import | ROCm's library is missing | ROCM_PATH
    ImportError: libamdhip64.so.6: cannot open shared object
    ImportError: /v/exllama_ext.so: undefined symbol: hipblasGetStream
    ImportError: /opt/rocm/lib/libamdhip64.so.6: version `hip_6.2' not found (required by /v/libtorch_hip.so)
import | ROCm's library is missing | rocm-sdk test
    ImportError: librocm_sysdeps_liblzma.so.5: cannot open shared object file
import | system library too old | conda | {TRACE}ImportError: version `GLIBCXX_3.4.32' not found
import | flash-attn has no kernels here | TRITON_AMD_ENABLE=TRUE
    {CALL}ModuleNotFoundError: No module named 'flash_attn_2_cuda'
import | no flash-attn | python -m pip
    {TRACE}ModuleNotFoundError: No module named 'flash_attn'
    ImportError: the package flash_attn seems to be not installed.
    AssertionError: flash_attn is not installed.
    ImportError: Flash Attention 2 is not available. Please refer to the documentation
    RuntimeError: Backend 'flash' is not usable because of missing package. Please install `flash-attn>=2.6.3`.
    To use the `--use-flash-attention` feature, the `flash-attn` package must be installed first.
pip | versions do not fit together | minor version
    ERROR: Cannot install flash-attn and torch==2.9.1 because these package versions have conflicting dependencies.
import | flash-attn too old | newer release
    ImportError: FlashAttention2 has been toggled on: you need flash_attn package version to be greater than 2.1.0.
    NameError: name 'flash_attn_func' is not defined
import | flash-attn of another release | another directory
    {TRACE}ImportError: cannot import name 'flash_attn_varlen_func' from 'flash_attn' (unknown location)
import | flash-attn of another release | the release that the program needs
    TypeError: flash_attn_func() got an unexpected keyword argument 's_aux'
    TypeError: _flash_attn_varlen_forward() missing 2 required positional arguments: 'window_size_left' and 'right'
    ValueError: not enough values to unpack (expected 8, got 4)
import | aiter does not fit | up to 2.8.3
    {CALL}ModuleNotFoundError: No module named 'aiter'
    ImportError: aiter is not installed on AMD ROCm platform.
import | a file hides the package | a file triton.py
    ModuleNotFoundError: No module named 'triton.language'; 'triton' is not a package
import | requirement is missing | needs einops | {CALL}ModuleNotFoundError: No module named 'einops'
import | damaged file | df -h | ImportError: /v/flash_attn_2_cuda.so: file too short
import | torch is too old | the wheel for this torch
    {CALL}AttributeError: module 'torch.library' has no attribute 'wrap_triton'
import | a part for CUDA | exists for CUDA only
    {TRACE}ModuleNotFoundError: No module named 'dropout_layer_norm'
    {TRACE}ModuleNotFoundError: No module named 'flash_attn_interface'
    ImportError: FlashAttention3 has been toggled on, but it cannot be used due to the following error
import | vLLM without ROCm | for ROCm
    ModuleNotFoundError: No module named 'vllm._rocm_C'
    RuntimeError: Failed to infer device type
import | executable stack | patchelf | ImportError: libamdhip64.so: cannot enable executable stack as
import | torch is imported too late | before | ImportError: libc10.so: cannot open shared object file: No such
import | imported too late | torch first | ImportError: /x.so: cannot allocate memory in static TLS block
import | Triton of another torch | --force-reinstall
    {CALL}ImportError: cannot import name 'triton_key' from 'triton.compiler.compiler' (/v/triton/compiler.py)
    AttributeError: type object 'CompiledKernel' has no attribute 'launch_enter_hook'
    torch._inductor.exc.TritonMissing: Cannot find a working triton installation. Either the package is not installed
run time | Triton needs a C compiler | gcc
    {CALL}RuntimeError: Failed to find C compiler.
    /t/tmpa1/main.c:4:10: fatal error: Python.h: No such file
run time | Triton cannot compile the kernel | the doctor
    File "/v/lib/python3.12/site-packages/triton/x.py"\nLLVM ERROR: Cannot select: intrinsic %llvm.amdgcn.x
run time | kernel library could not be linked | rocm-sdk path --root
    [aiter] failed jit build [module_x]\n/usr/bin/ld: cannot find -lamdhip64: No such file
run time | program crashed | faulthandler
    $ python -c "import flash_attn"\nSegmentation fault (core dumped)
run time | Triton cannot compile the kernel | the doctor
    error: <unknown>:0: in function attn_fwd void: unsupported\nLLVM ERROR: Cannot select: intrinsic %llvm.amdgcn.x
    torch._inductor.exc.InductorError: RuntimeError: LLD failed to link hsaco source
run time | kernel does not fit the GPU | SDPA
    error: triton_flash_attention.py:211:0: stack frame size (164332) exceeds limit (131056) in function 'attn_fwd_0d'
run time | old fork of flash-attn | uninstall it
    The current flash attention version does not support sliding window attention
    {CALL}RuntimeError: Expected dout_seq_stride == out_seq_stride to be true, but got false.
    {CALL}RuntimeError: FlashAttention forward only supports head dimension at most 128
    {CALL}RuntimeError: DeviceGroupedMultiheadAttentionForward_Xdl_CShuffle_V2<256, 128> does not support this problem
    Flash Attention failed, using default SDPA: FlashAttention currently only supports MI100 and RX7000 and above
    1 out of 1 hunk FAILED -- saving rejects to file /v/torch/utils/hipify/hipify_python.py.rej
run time | autotuning fails | unset
    {CALL}ValueError: Unknown Device Type
run time | aiter does not compile | rocm[devel]
    ModuleNotFounderror: No module named 'aiter.jit.module_x'\nRuntimeError: [aiter] build [module_x] under /b failed
run time | error at run time | AMD_SERIALIZE_KERNEL
    RuntimeError: Triton Error [HIP]:  Code: 1, Messsage: invalid argument
    RuntimeError: CUDA error: HIPBLAS_STATUS_INTERNAL_ERROR when calling `hipblasGemmEx`
run time | a kernel did not start | enable_flash_sdp(False)
    torch.AcceleratorError: CUDA error: invalid argument
run time | Triton finds no linker | rocm-sdk path
    Exception: ROCm linker /opt/rocm/llvm/bin/ld.lld not found. Set 'TRITON_HIP_LLD_PATH' to its path.
run time | ComfyUI went on with SDPA | passes a mask
    Flash Attention failed, using default SDPA:
    Flash Attention failed, using default SDPA: schema_.has_value() INTERNAL ASSERT FAILED at "OperatorEntry.h":84
run time | NaN | attn_implementation="eager"
    {{'loss': 2.3101, 'grad_norm': nan, 'learning_rate': 4e-06}}
    steps:   2%|2         | 31/1600 [01:02<52:41,  2.01s/it, avr_loss=nan]
    RuntimeError: Function 'FlashAttnVarlenFuncBackward' returned nan values in its 0th output.
    RuntimeError: probability tensor contains either `inf`, `nan` or element < 0
    modules.devices.NansException: A tensor with all NaNs was produced in Unet.
run time | torch has no flash attention | --use-flash-attention
    /c/attention.py:111: UserWarning: 1Torch was not compiled with flash attention. (Triggered internally at x.cpp)
run time | torch.compile breaks the graph | fullgraph=True
    /v/functions.py:663: UserWarning: Graph break due to unsupported builtin flash_attn_2_cuda.PyCapsule.varlen_fwd.
    torch._dynamo.exc.Unsupported: Unsupported Tensor.item() call with capture_scalar_outputs=False
    torch._dynamo.convert_frame: [WARNING] torch._dynamo hit config.cache_size_limit (64)
run time | error at run time | AMD_SERIALIZE_KERNEL | hipErrorStreamCaptureUnsupported: operation not permitted
run time | no code for this GPU | the doctor
    {CALL}RuntimeError: HIP error: invalid device function
    torch.AcceleratorError: HIP error: no kernel image is available for execution on the device
    "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"
    Error: The program ISA amdgcn-amd-amdhsa--gfx942 is not compatible with the device ISA amdgcn-amd-amdhsa--gfx90a
    {CALL}AssertionError: Unsupported gfx arch gfx1031
    RuntimeError: FlashAttention only supports AMD MI200 GPUs or newer.
    rocBLAS error: Cannot read /opt/rocm/lib/TensileLibrary.dat for GPU arch : gfx1103
    rocblaslt error: Cannot read "TensileLibrary_lazy_gfx1103.dat": No such file
run time | CK has no kernel for this call | preview | {CALL}RuntimeError: invalid argument for fmha_bwd
run time | head dim too large | sdpa | {CALL}RuntimeError: only supports head dimension at most 256
run time | kernel does not fit the GPU | needs 98304 bytes of shared memory (LDS), and the GPU has 65536
    {TRACE}OutOfResources: out of resource: shared memory, Required: 98304, Hardware limit: 65536.
run time | Triton cannot compile the kernel | Triton is the one that torch requires
    {CALL}triton.compiler.errors.CompilationError: at 45:22:
    {CALL}RuntimeError: PassManager::run failed
    {CALL}ValueError: 'IS_CAUSAL' is not in list
run time | AOTriton's switch is off | export TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1
    UserWarning: Flash attention on AMD GPU is still experimental. TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1.
    {TRACE}RuntimeError: No available kernel. Aborting execution.
run time | option is not supported | the other backend
    {CALL}RuntimeError: FlashAttention backward does not support dropout
    RuntimeError: Flash attention on ROCm does not support deterministic backward pass
    NotImplementedError: alibi_slopes is not supported by the AMD Triton backward
run time | layout is not supported | .contiguous()
    {CALL}RuntimeError: Input tensor must have contiguous last dimension
    {CALL}RuntimeError: head_size should be a multiple of 8
run time | tensors are on the CPU | model.to("cuda")
    {CALL}ValueError: Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)
    NotImplementedError: Could not run 'flash_attn::_flash_attn_forward' with arguments from the 'CPU' backend.
run time | page size does not fit | --block-size 128
    ERROR 04-09 09:19:17 [core.py:386] RuntimeError: Paged KV cache block size must be divisible by 128
run time | GPU memory is full | AOTRITON | torch.OutOfMemoryError: HIP out of memory. Tried 8 GiB
run time | GPU memory is full | smaller batch | RuntimeError: HIP error: out of memory
run time | GPU fault | SERIALIZE
    Memory access fault by GPU node-1 on address 0x7f. Reason: Page
    amdgpu 0000:c5:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32778)
    [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3
run time | dtype is not supported | autocast
    {CALL}FlashAttention only support fp16 and bf16: error
    Flash Attention 2 only supports torch.float16 and torch.bfloat16 dtypes, but the current dype is torch.float32.
run time | no GPU visible | --device=/dev/kfd | {TRACE}RuntimeError: No HIP GPUs are available
run time | no GPU visible | render | RuntimeError: 0 active drivers ([]). There should only be one.
run time | no permission for the GPU | usermod
    rocminfo: Unable to open /dev/kfd read-write: Permission denied
    alice is not member of "render" group, the default DRM access group.
run time | no GPU visible | in WSL
    RuntimeError: Unexpected error from hipGetDeviceCount(). Did you run some cuda functions before
    hsa api call failure at: /usr/src/rocminfo/rocminfo.cc:1306
    rocBLAS error: Could not initialize Tensile host: No devices found
    Flash Attention 2 is not available on CPU. Please make sure torch can access a CUDA device.
run time | error at run time | SERIALIZE | RuntimeError: HIP error: the operation cannot be performed
run time | crash of a library | the doctor | Fatal Python error: Aborted\n{CALL}
run time | error at run time | the doctor | {CALL}ValueError: strange thing
container | devices of the container | --device=/dev/kfd | docker: could not select device driver: error
container | host without an AMD driver | the host has no /dev/kfd
    Error response from daemon: error gathering device information: custom device "/dev/kfd": no such file
container | image not found | Docker Hub | manifest for rocm/pytorch:rocm9 not found: error
container | devices of the container | CDI | Error: setting up CDI: unresolvable CDI devices amd.com/gpu=all
container | no group render in the image | getent | docker: unable to find group render: no matching entries
container | no GPU for the pod | plugin | 0/3 nodes are available: 3 Insufficient amd.com/gpu.
container | Docker does not answer | systemctl | Cannot connect to the Docker daemon at unix:///var/run/docker.sock
container | too little shared memory | --ipc=host | DataLoader worker (pid 12) is killed by signal: Bus error
container | too many pulls | docker login | Error response from daemon: toomanyrequests: You have reached
container | no space left | free | failed to register layer: write /opt/rocm/a.so: no space left on device
container | image for another processor | x86-64 | no matching manifest for linux/arm64: error
"""
"""The kind of a text, its cause, a part of the reason or the remedy, and the text, with the names above in braces."""
CASES = [(*expected, text.format_map(globals())) for *expected, text in rows(PASTED, 4)]

OTHERS = [
    "$ ./server\nSegmentation fault (core dumped)\n",
    f'{TRACE}  File "/srv/app.py", line 3\nPermissionError: [Errno 13] Permission denied: "/srv/data"\n',
    f"{TRACE}KeyError: 'flash'\nValueError: not a flash-attn build\n",
    "npm ERR! code ENOENT\nnpm ERR! No such file or directory\n",
    "make: *** [Makefile:10: all] Error 2\nmain.c:3:10: fatal error: foo.h: No such file or directory\n",
    f"{TRACE}ModuleNotFoundError: No module named 'requests'\n",
    f"{TRACE}requests.exceptions.ConnectionError: Failed to establish a new connection\n",
    "2026-01-01 ERROR [main] java.lang.NullPointerException: x is null\n",
]


def read(text: str) -> BuildLog:
    return read_build_log(filter(lambda line: line.text, map(clean_line, text.splitlines())), "pasted")


@pytest.mark.parametrize(("kind", "cause", "answer", "text"), CASES)
def test_a_pasted_text_has_its_kind_cause_and_next_step(kind: str, cause: str, answer: str, text: str) -> None:
    build_log = read(text)
    assert build_log.cause
    assert (build_log.kind, build_log.cause.name) == (kind, cause)
    assert answer in f"{build_log.cause.reason} {build_log.cause.remedy}"
    assert "{" not in build_log.cause.reason, "every name in braces is replaced"


@pytest.mark.parametrize("text", OTHERS)
def test_a_text_about_something_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a known error about flash-attn"):
        read(text)


@pytest.mark.parametrize("package", ["flash-attn", "some pyproject.toml based projects (flash_attn)", "other"])
def test_the_end_of_a_build_that_failed_is_one_if_it_names_flash_attn(package: str) -> None:
    text = f"ninja: build stopped: subcommand failed.\nERROR: Failed to build {package}\n"
    if package == "other":
        with pytest.raises(InputError, match="not a known error about flash-attn"):
            read(text)
    else:
        build_log = read(text)
        assert (build_log.kind, build_log.state, build_log.cause) == ("build", "failed", None)


def test_every_symptom_has_a_text() -> None:
    known = {symptom.name for symptoms in symptom_table().ranks for symptom in symptoms}
    assert known == {name for name, *_ in rows(FAILURES, 3)} | {cause for _, cause, *_ in CASES}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{COMPILE}FAILED: x\n".replace("gfx1151", "gfx1100"), "SITE/simple/rocm72/torch2.12/triton/ flash-attn"),
        # AMD's build of torch 2.9 for a ROCm that PyTorch has no torch 2.9 for: a Triton wheel does not depend on ROCm
        (
            BUILD.replace("2.12.1+rocm7.2", "2.9.1+rocm7.2.0.git7e1") + "FAILED: x\n",
            "SITE/simple/rocm64/torch2.9/triton/",
        ),
        (BUILD.replace("2.12.1", "2.4.1") + "FAILED: x\n", DOCTOR_LINE),
        (f"{CALL}RuntimeError: HIP error: invalid device function\n", DOCTOR_LINE),
    ],
)
def test_a_failure_ends_with_the_matching_wheel_or_the_doctor(text: str, line: str) -> None:
    assert line in find_wheel_line(read(text), load_matrix(MATRIX))


def test_no_wheel_is_named_where_it_changes_nothing() -> None:
    matrix = load_matrix(MATRIX)
    assert find_wheel_line(read(f"{TRACE}RuntimeError: operator torchvision::nms does not exist\n"), matrix) == ""
    assert find_wheel_line(read(COMPILE.partition("FAILED")[0]), matrix) == "", "it runs"
