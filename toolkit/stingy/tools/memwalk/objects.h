// Finds the objects that requests own: the places of their allocation and release, their size, and their holders.
#pragma once
#include "memwalk/stages.h"
#include <deque>

namespace stingy {

struct Size {
    enum Class { constant, n_constant, bounded, variable } kind = constant;
    std::optional<uint64_t> bytes, most; ///< to reserve; never larger
    uint64_t least = 0;                  ///< never smaller
    uint64_t unit = 0;
    std::string reason, from; ///< from: empty (analysis) or configuration
};

/// Why stingify must not change an object.
struct Hindrance {
    Place place;
    std::string why;
};

struct Site {
    const llvm::CallBase *call;
    bool is_indirect = false; ///< `free` is called through a pointer
    std::string allocator, function;
    Place place;
    unsigned column = 0;
    std::vector<unsigned> stages;
    const WrittenCall *written = nullptr;
    Size size;
};

struct Object {
    std::string id, type, record, doubt;
    enum Scope { request, temporary, shared } scope = shared;
    bool is_request = false, is_freed_on_every_path = false;
    bool is_temporary = false; ///< one call makes it and frees it; no request waits with it
    bool is_pool = false, is_pool_of_request = false, is_pooled = false;
    std::set<unsigned> pools; ///< objects that it may lie in; it ends with them
    std::optional<uint64_t> per_request;
    uint64_t align = 1;
    Size size;
    std::vector<Site> alloc, realloc, free;
    std::vector<Site> maybe_freed, maybe_resized; ///< possible by the analysis of pointers, but not by their types
    std::vector<Hindrance> hindrances;
    std::vector<Cell> holders;
    std::set<unsigned> live;
};

struct Objects {
    std::vector<Object> all;
    std::set<std::string> request_records;
    std::vector<Site> unknown_freed, unknown_resized;     ///< calls of which no block is seen that they may get
    std::map<const llvm::CallBase *, unsigned> object_of; ///< allocating calls
    std::map<const llvm::CallBase *, std::vector<unsigned>> freed_by; ///< freeing calls
    std::set<unsigned> ends; ///< stages that free the request at hand; of others that they may close, it says nothing
    std::deque<WrittenCall> stored_by_argument; ///< as if their results were assigned
    std::vector<Pointers::Warning> doubts;
};

/// Fills `scope` and `per_request`: request structures belong to a request, and objects to which their fields lead or
/// that lie in their pools.
void find_ownership(const Program &program, const Calls &calls, Objects &objects);
bool find_objects(const Program &program, const Config &config, const Calls &calls, const Allocators &allocators,
                  const StageGraph &graph, Objects &objects, std::string &error);

} // namespace stingy
