// A HIP runtime without a GPU, to link CK's host API with: a launch prints the kernel, its grid and its arguments.
//
// A line of the output is `launch NAME GRID_X GRID_Y GRID_Z BLOCK_X BLOCK_Y BLOCK_Z LOCAL_BYTES ARGUMENT...`; arguments
// are in hexadecimal. Host code does not know their sizes: a file, named by the variable KERNEL_ARGUMENTS, has a line
// `NAME SIZE...` for each kernel. Other functions of HIP are missing, so that a call of one ends the program: a stand-in
// that returned something would be a guess.
#include <hip/hip_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

struct Configuration {
    dim3 grid, block;
    size_t local;
    hipStream_t stream;
};

static std::map<const void *, std::string> &functions() {
    static std::map<const void *, std::string> names;  // not a global: it is used before globals are created
    return names;
}

static std::vector<Configuration> configurations;

static std::vector<size_t> find_argument_sizes(const std::string &kernel) {
    std::ifstream file(std::getenv("KERNEL_ARGUMENTS"));
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        words >> name;
        if (name != kernel) continue;
        std::vector<size_t> sizes;
        for (size_t size; words >> size;) sizes.push_back(size);
        return sizes;
    }
    std::fprintf(stderr, "error: no code for kernel %s\n", kernel.c_str());
    std::exit(1);
}

API void **__hipRegisterFatBinary(const void *) {
    static void *handle;
    return &handle;
}

API void __hipUnregisterFatBinary(void **) {}

API void __hipRegisterFunction(
    void **, const void *function, char *, const char *name, unsigned, void *, void *, void *, void *, int *) {
    functions()[function] = name;
}

API hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t local, hipStream_t stream) {
    configurations.push_back({grid, block, local, stream});
    return hipSuccess;
}

API hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *local, hipStream_t *stream) {
    auto &last = configurations.back();
    *grid = last.grid, *block = last.block, *local = last.local, *stream = last.stream;
    configurations.pop_back();
    return hipSuccess;
}

API hipError_t hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t local, hipStream_t) {
    const auto &name = functions().at(function);
    std::printf("launch %s %u %u %u %u %u %u %zu", name.c_str(), grid.x, grid.y, grid.z, block.x, block.y, block.z, local);
    for (size_t size : find_argument_sizes(name)) {
        std::putchar(' ');
        auto *bytes = static_cast<unsigned char *>(*arguments++);
        for (size_t at = 0; at < size; at++) std::printf("%02x", bytes[at]);
    }
    std::putchar('\n');
    return hipSuccess;
}

API hipError_t hipGetDevice(int *device) {
    *device = 0;
    return hipSuccess;
}

API hipError_t hipGetDeviceProperties(hipDeviceProp_t *properties, int) {
    const std::string arch = std::getenv("KERNEL_ARCH");
    std::memset(properties, 0, sizeof *properties);
    std::snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "%s", arch.c_str());
    properties->major = std::stoi(arch.substr(3, arch.size() - 5));  // two digits are minor and stepping
    properties->warpSize = properties->major > 9 ? 32 : 64;
    properties->multiProcessorCount = 304;
    return hipSuccess;
}

API hipError_t hipGetLastError() { return hipSuccess; }
API hipError_t hipPeekAtLastError() { return hipSuccess; }
API const char *hipGetErrorString(hipError_t) { return "no error"; }
