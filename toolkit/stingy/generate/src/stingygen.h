// stingygen: makes a memory map and its C code from memwalk's result.
//
//   read.cpp    memwalk's JSON, a profile of sizes      -> Program
//   place.cpp   Program, cache                          -> Layout: stack, globals, regions; how many requests fit
//   emit.cpp    Program, Layout                         -> stingy_gen.h, stingy_gen.c
#ifndef STINGYGEN_H
#define STINGYGEN_H

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

// A cache line.
constexpr uint64_t LINE = 64;

constexpr uint64_t round_up(uint64_t bytes, uint64_t to) {
    return (bytes + to - 1) / to * to;
}

// A message of one sentence: the problem, its place, and the remedy.
struct Refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Object {
    std::string id, type;
    bool is_request = false, is_doubtful = false;
    bool is_bounded = false; // memwalk knows no exact size, only a bound
    uint32_t align = 1;
    uint32_t per_request = 1;   // number that a request holds at once
    uint64_t bytes = 0;         // bytes reserved per object; 0: unknown
    std::string bytes_from;     // source of `bytes`: analysis, configuration, profile, option
    std::set<std::string> live; // stages in which it is live
};

struct Stage {
    std::string name;
    bool is_entry = false;
    std::vector<std::string> allocates; // ids of the allocated objects
    uint64_t stack_bytes = 0;
    bool is_stack_bound = false; // the stack is never deeper
};

struct Program {
    std::vector<Stage> stages;  // in the order of execution
    uint64_t globals_bytes = 0; // total of the globals that stages touch
    std::vector<Object> objects;
    std::vector<std::string> warnings;
};

struct SizeOption {
    uint64_t bytes = 0;
    uint32_t per_request = 0; // 0: memwalk's number
};

struct Options {
    std::string input, output, profile;
    uint64_t l2_bytes = 0, low_bytes = 256 << 10, high_bytes = 32 << 20, default_bytes = 0;
    std::optional<uint64_t> stack_bytes; // none: memwalk's bound
    double share = 0.5;
    uint32_t requests = 0; // 0: as many as fit
    std::map<std::string, SizeOption> sizes;
    std::map<std::string, uint32_t> slots; // slots of objects that few requests need
    std::set<std::string> without;         // objects left to malloc
};

struct Region {
    std::string name;
    std::vector<size_t> objects;
    uint64_t slot_bytes = 0, offset_bytes = 0;
    uint32_t per_request = 0, slots = 0;
    bool is_scarce = false; // its slots were given; it does not limit admission
};

struct Layout {
    // Parts of the cache slab, and the part that one request takes.
    uint64_t cache_bytes = 0, stack_bytes = 0, globals_bytes = 0, request_bytes = 0;
    uint32_t requests = 0;
    std::vector<Region> regions;
    std::vector<size_t> region_of; // index: object, value: region
};

Program read_program(const Options &options);
bool lives_with(const Object &a, const Object &b);
// May add to the program's warnings.
Layout place(Program &program, const Options &options);
// Whether the stage allocates a request structure.
bool lets_in(const Program &program, const Stage &stage);
// The stage's name as the later part of a C identifier, so its first character may be a digit.
std::string stage_word(const Stage &stage);
std::string emit_header(const Program &program, const Layout &layout);
std::string emit_source(const Program &program, const Layout &layout, const Options &options);

#endif
