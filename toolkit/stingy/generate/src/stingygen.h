// stingygen: makes a memory map and its C code from memwalk's result.
//
//   read.cpp    memwalk's JSON, a profile of sizes      -> Program
//   globals.cpp Program                                 -> which globals are placed, in which order; stingy_globals.ld
//   place.cpp   Program, cache, layout                  -> Layout: regions or a frame, how many requests fit
//   emit.cpp    Program, Layout                         -> stingy_gen.h, stingy_gen.c
#ifndef STINGYGEN_H
#define STINGYGEN_H

#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

// A cache line.
constexpr uint64_t LINE = 64;

constexpr uint64_t round_up(uint64_t bytes, uint64_t to) {
    return (bytes + to - 1) / to * to;
}

// One sentence: what, where, what to do.
struct Refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Object {
    std::string id, type;
    bool is_request = false, is_doubtful = false;
    uint32_t align = 1;
    uint32_t per_request = 1;   // how many a request holds at once
    uint64_t bytes = 0;         // reserved for one; 0: unknown
    std::string bytes_from;     // analysis, configuration, profile, option
    std::set<std::string> live; // stages
};

struct Stage {
    std::string name;
    bool is_entry = false;
    std::vector<std::string> allocates; // object ids
    uint64_t stack_bytes = 0;
    std::string why_unbounded; // why stack_bytes may not be all; empty: it is a bound
};

// A variable of the program that stages touch.
struct Global {
    std::string name; // `function.name` for what is static in a function
    uint64_t bytes = 0, align = 1;
    bool is_written = false;
    size_t stages = 0; // how many touch it
};

struct Program {
    std::vector<Stage> stages; // in order of treatment
    std::vector<Global> globals;
    std::vector<Object> objects;
    std::vector<std::string> warnings;
};

struct SizeOption {
    uint64_t bytes = 0;
    uint32_t per_request = 0; // 0: as found
};

struct Options {
    std::string input, output, profile;
    uint64_t l2_bytes = 0, stack_bytes = 0, globals_bytes = 0 /* kept free */, low_bytes = 256 << 10,
             high_bytes = 32 << 20, default_bytes = 0;
    double share = 0.5;
    bool is_frame = false;
    uint32_t requests = 0; // 0: as many as fit
    std::map<std::string, SizeOption> sizes;
    std::map<std::string, uint32_t> slots; // of objects that few requests need
    std::set<std::string> without;         // left to malloc
    bool is_stack_auto = false, has_globals = false /* --globals */, is_globals_auto = false;
    std::set<std::string> without_globals; // left where the compiler puts them
};

struct Region {
    std::string name;
    std::vector<size_t> objects;
    uint64_t slot_bytes = 0, offset_bytes = 0;
    uint32_t per_request = 0, slots = 0;
    bool is_scarce = false; // its slots were given; it does not limit who is let in
};

struct Place {
    size_t object;
    uint64_t offset_bytes, overlaps;
};

struct Layout {
    uint64_t cache_bytes = 0, stack_bytes = 0, request_bytes = 0; // request_bytes: cache slab for one request
    uint32_t requests = 0;
    std::vector<Region> regions;
    std::vector<size_t> region_of;     // object -> region
    std::vector<uint64_t> place_bytes; // object -> what a place holds
    std::vector<Place> places;         // frame
    std::vector<size_t> first_place;   // frame: object -> place
};

// The globals that are placed, in the order of the section; --globals auto sets what is kept free.
std::vector<Global> choose_globals(const Program &program, Options &options, std::vector<Global> &left);
std::string emit_linker_script(const std::vector<Global> &globals, const Options &options);

Program read_program(const Options &options);
bool lives_with(const Object &a, const Object &b);
Layout place(const Program &program, const Options &options);
// Whether it allocates a request structure.
bool lets_in(const Program &program, const Stage &stage);
// Name of a stage as a part of a C identifier, which it does not begin: the first sign may be a digit.
std::string stage_word(const Stage &stage);
std::string emit_header(const Program &program, const Layout &layout, const Options &options);
std::string emit_source(const Program &program, const Layout &layout, const Options &options, bool has_section);

#endif
