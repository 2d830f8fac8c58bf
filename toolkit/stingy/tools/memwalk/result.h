// The result of all analyses, and its output forms.
#pragma once
#include "memwalk/fields.h"
#include "memwalk/stack.h"

namespace stingy {

struct Cache {
    std::string name;
    uint64_t bytes = 0;
    std::string why_not;
};

struct Global {
    const llvm::GlobalVariable *variable;
    std::string name;
    Place place;
    uint64_t bytes = 0, align = 1;
    bool is_written = false;
    std::set<unsigned> stages;
};

/// The memory of a request at a stage.
struct State {
    uint64_t bytes = 0, lines = 0;             ///< to reserve: of an object with a bound, the bound
    uint64_t least_bytes = 0, least_lines = 0; ///< of an object with a bound, its smallest size
    bool is_bound = true;
};

struct Result {
    const Program *program;
    const Config *config;
    const Pointers *pointers;
    const StageGraph *graph;
    const Objects *objects;
    const Allocators *allocators;
    std::vector<StackBound> stack;
    std::vector<Layout> layouts;
    std::vector<Global> globals;
    std::vector<State> states;
    std::vector<Pointers::Warning> unsound, doubts;
    std::string frames;
    unsigned functions = 0;
    uint64_t line_bytes = 64;
    std::vector<const Object *> request_objects, shared_objects;
    std::vector<unsigned> order; ///< stages, beginnings first
};

/// Computes globals, states and the sorted lists from the other fields.
void complete(Result &result, const Calls &calls);

void write_json(const Result &result, llvm::raw_ostream &out);
void write_dot(const Result &result, llvm::raw_ostream &out);
void write_report(const Result &result, const std::vector<Cache> &caches, llvm::raw_ostream &out);

/// The call that queues a request, as written in the source, on one line.
std::string event_text(const Edge &edge);
std::string class_name(const Size &size);

} // namespace stingy
