// Fields of a call as text, and how each type of member is set from it.
#pragma once

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

using Fields = std::map<std::string, std::string>;

template <class T>
static void set(T &member, const std::string &text) {
    if constexpr (std::is_pointer_v<T>) {
        member = reinterpret_cast<T>(std::strtoull(text.c_str(), nullptr, 0));
    } else if constexpr (std::is_same_v<T, std::string>) {
        member = text;
    } else if constexpr (std::is_floating_point_v<T>) {
        member = std::strtof(text.c_str(), nullptr);
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
        member = static_cast<T>(std::atol(text.c_str()));
    } else {  // seed and offset of dropout, as two pointers
        char *rest;
        auto *first = reinterpret_cast<const void *>(std::strtoull(text.c_str(), &rest, 0));
        auto *second = reinterpret_cast<const void *>(std::strtoull(rest, nullptr, 0));
        member = std::pair<const void *, const void *>(first, second);
    }
}
