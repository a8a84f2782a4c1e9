// Reads a call from stdin (the name of an API function, then a line for each field) and makes it.
//
// Fields that the function's structs lack are left out. Exits with 1 if it has no kernel for the call.
#include "call_api.hpp"

#include <cstdio>
#include <exception>
#include <iostream>

// each header of CK is compiled by itself, because they define some of the same names
#undef CALL
#define CALL(api) float call_##api(const Fields &);
#include "apis.inc"
#undef CALL

int main() {
    std::string api, name, value;
    Fields fields;
    std::cin >> api;
    while (std::cin >> name && std::getline(std::cin >> std::ws, value)) fields[name] = value;
    float result = -1;
    try {
#define CALL(name) if (api == #name) result = call_##name(fields);
#include "apis.inc"
    } catch (const std::exception &error) {
        std::fprintf(stderr, "error: %s: %s\n", api.c_str(), error.what());
        return 1;
    }
    if (result < 0) std::fprintf(stderr, "error: %s has no kernel for this call\n", api.c_str());
    return result < 0;
}
