// stingy.toml: the meaning of a server's functions, structures and fields if its source does not show it.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stingy {

/// A line of the configuration or of the source, for messages.
struct Place {
    std::string file;
    unsigned line = 0;
    std::string text() const { return line ? file + ":" + std::to_string(line) : file; }
};

/// A function that allocates. Arguments count from 0; -1 stands for none.
struct Allocator {
    int size = -1, count = -1, pointer = -1;
    int through = -1;     ///< it stores the block where this argument points, and returns something else
    bool resizes = false; ///< with `through`: what was stored there it reallocates itself
    int unless = -1;      ///< it allocates only where this argument is null
    int pool = -1;        ///< the block lies in this pool and is freed with it
    bool is_pool = false; ///< what it returns (or frees) is a pool
    std::string type;     ///< structure that it returns, if it has no size
    std::string like;     ///< "strdup": the size is a string's length and one; "computed": from the arguments
    std::string within;   ///< of a wrapper: the allocator that it calls
    bool zeroes = false;
    bool is_foreign = false; ///< the C library chooses when to allocate, and how much
    bool dies = false;       ///< of a wrapper: it ends the program where there is no memory
    bool is_plain = false;   ///< of a wrapper: it does nothing else but to zero the block, or to end the program
    Place place;
};

/// A function of the server that takes a request and a stage.
struct StageCall {
    int request = -1, stage = -1;
    Place place;
};

/// A function outside the program that calls its argument, during the call or later from the event loop.
struct Callback {
    int argument = -1;
    bool later = false;
    Place place;
};

/// A function that frees and whose address is given away, with the objects freed through it, by id or structure.
struct HandedOn {
    std::vector<std::string> frees;
    Place place;
};

struct NamedStage {
    std::string name, entry, list;
    std::vector<std::string> after;
    Place place;
};

struct ObjectSize {
    std::string id, type;
    std::optional<uint64_t> typical, most, per_request;
    Place place;
};

/// A field that holds a request's stage, as the configuration names it.
struct StateName {
    std::string type, field;
};

/// The contents of stingy.toml and of the annotations. Names are those of the source.
struct Config {
    std::string file;
    std::string scheduler, dispatch;
    Place scheduler_place, state_place, dispatch_place, requests_place, outside_place;
    std::vector<StateName> states;
    std::vector<std::string> requests;
    std::vector<std::string> outside; ///< functions that serve no request: start-up, timers of the program itself
    std::map<std::string, StageCall> queue_stage, schedule_stage;
    std::vector<NamedStage> stages;
    std::map<std::string, Allocator> malloc_like;
    std::map<std::string, Allocator> free_like; ///< `pointer` only
    std::multimap<std::string, Callback> callbacks;
    std::map<std::string, HandedOn> handed_on;
    std::vector<ObjectSize> objects;
    std::map<std::string, uint64_t> external_stack;
    uint64_t external_bytes = 4096;

    /// Reads a file. Returns false on failure; `error` then has file, line, problem and remedy.
    bool read(const std::string &path, std::string &error);
    /// Adds the C library's allocators and callbacks, unless the file defines them.
    void add_known();
};

} // namespace stingy
