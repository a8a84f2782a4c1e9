"""Execute the machine code of Triton kernels for AMD GPUs on a CPU, from the text of their assembly.

`dispatch.launch` is the way in. The modules depend on the standard library, numpy 2 and `wheel.elf`, because programs
in other Python environments use them. Sources: AMD's instruction set documents, and LLVM's "User Guide for AMDGPU
Backend" for descriptors and initial registers.
"""
