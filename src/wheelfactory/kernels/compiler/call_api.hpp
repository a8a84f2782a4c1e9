// Fields of a call as text, and how each member of CK's structs is set from the field of its name.
#pragma once

#include <cstdlib>
#include <map>
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

// Sets what `member` returns, if the struct has it: releases differ in their members.
template <class Struct, class Member>
static void set_member(Struct &object, Member member, const Fields &fields, const char *name) {
    if constexpr (std::is_invocable_v<Member, Struct &>) {
        if (auto found = fields.find(name); found != fields.end()) set(member(object), found->second);
    }
}

template <class Struct>
static Struct make(const Fields &fields) {
    Struct object{};
#define FIELD(name) \
    set_member(object, [](auto &each) -> decltype((each.name)) { return each.name; }, fields, #name);
#include "fields.inc"
#undef FIELD
    return object;
}

#define CALL(api)                                                                                            \
    float call_##api(const Fields &fields) {                                                                 \
        return api(make<api##_traits>(fields), make<api##_args>(fields), ck_tile::stream_config{});          \
    }
