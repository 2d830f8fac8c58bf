// The stage call graph: which code runs while a request is at a stage, and where requests go from there.
#pragma once
#include "memwalk/calls.h"
#include "llvm/ADT/SetVector.h"

namespace llvm { class BasicBlock; }

namespace stingy {

struct Edge {
  unsigned from, to;
  const llvm::Instruction *at;  ///< what queues the request; null: only told by the configuration
  std::vector<const llvm::Instruction *> places; ///< all that do
};

struct Stage {
  std::string name, kind;       ///< kind: as in schema/memwalk.schema.json
  std::optional<int64_t> value;
  const llvm::Function *function = nullptr;   ///< function-pointer stages and entries: where it begins
  const llvm::Function *dispatcher = nullptr; ///< else: the function with its switch or if
  Place place;
  llvm::SetVector<const llvm::BasicBlock *> blocks;    ///< its own code within dispatchers
  std::set<const llvm::BasicBlock *> starts;           ///< those of them in which it begins
  llvm::SetVector<const llvm::Function *> functions;   ///< what that can call, with bodies
  bool contains(const llvm::Instruction &instruction) const;
};

struct StageGraph {
  std::vector<Stage> stages;
  std::vector<Edge> edges;                      ///< one for each pair of stages
  Cell state;                                   ///< record empty: stages are not stored in a field
  std::string state_type, state_field;
  const llvm::Function *scheduler = nullptr;
  std::set<const llvm::Function *> dispatchers; ///< functions that run stages; a stage's code does not descend into them
  std::vector<Pointers::Warning> doubts;
  std::vector<unsigned> stages_of(const llvm::Instruction &instruction) const;
};

/// False: `error` says that there are no stages, or what of the configuration the program lacks.
bool find_stages(const Program &program, const Config &config, const Calls &calls, StageGraph &graph, std::string &error);

/// The field that a cell is, by its name in the source; empty if unknown.
std::string field_name(const Facts &facts, const Cell &cell);

} // namespace stingy
