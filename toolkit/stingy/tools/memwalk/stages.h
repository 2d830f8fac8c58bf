// The stage call graph: the code that runs while a request is at a stage, and the stages that follow.
#pragma once
#include "memwalk/calls.h"
#include "llvm/ADT/SetVector.h"

namespace llvm {
class BasicBlock;
}

namespace stingy {

/// queued: the request waits until the stage is run. called: one stage runs the next at once, by name or through a
/// state field. returned: the called stage is over, and the caller continues with the request.
struct Edge {
    unsigned from, to;
    const llvm::Instruction *at; ///< the instruction that queues or calls; null: only in the configuration
    enum Kind { queued, called, returned } kind = queued;
    std::vector<const llvm::Instruction *> places, calls, returns; ///< all of each kind, of all edges between the two
};

/// A field that holds a request's stage. `type`: the structure's name in the configuration.
struct StateCell {
    Cell cell;
    std::string type, field;
    std::string text() const { return cell.record + "." + field; }
};

struct Stage {
    std::string name, kind; ///< kind: as in schema/memwalk.schema.json
    std::optional<int64_t> value;
    const llvm::Function *function = nullptr;   ///< function-pointer stages and entries: where it begins
    const llvm::Function *dispatcher = nullptr; ///< else: the function with its switch or if
    Place place;
    llvm::SetVector<const llvm::BasicBlock *> blocks;  ///< its own code within dispatchers
    std::set<const llvm::BasicBlock *> starts;         ///< those of them in which it begins
    llvm::SetVector<const llvm::Function *> functions; ///< what that can call, with bodies
    bool contains(const llvm::Instruction &instruction) const;
};

struct StageGraph {
    std::vector<Stage> stages;
    std::vector<Edge> edges;       ///< one for each pair of stages
    std::vector<StateCell> states; ///< empty: stages are not stored in a field; several: all hold functions
    const llvm::Function *scheduler = nullptr;
    std::set<const llvm::Function *>
        dispatchers;                          ///< functions that run stages; a stage's code does not descend into them
    std::set<const llvm::Function *> outside; ///< functions that serve no request
    std::set<const llvm::CallBase *> of_others; ///< calls through a state field that run other requests' stages
    std::vector<Pointers::Warning> doubts;
    std::vector<unsigned> stages_of(const llvm::Instruction &instruction) const;
};

/// Returns false if there are no stages, or if the program lacks something that the configuration names; `error` says
/// so.
bool find_stages(const Program &program, const Config &config, const Calls &calls, StageGraph &graph,
                 std::string &error);

/// The name of a cell's field in the source; empty if unknown.
std::string field_name(const Facts &facts, const Cell &cell);

} // namespace stingy
