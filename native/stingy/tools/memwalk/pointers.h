// Where pointers can point: inclusion constraints over the whole program, solved once.
#pragma once
#include "memwalk/allocators.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SparseBitVector.h"
#include <map>
#include <set>
#include <string>
#include <vector>

namespace llvm {
class CallBase;
class Constant;
class Function;
class Module;
class Type;
class Value;
}

namespace stingy {

/// A field of a structure type, whichever structure holds it: named by the innermost structure with a name, and the offset
/// in bytes from its begin. Fields of unnamed structures and unions count from the named one around them.
struct Cell {
  std::string record;
  uint64_t offset = 0;
  bool operator<(const Cell &o) const { return std::tie(record, offset) < std::tie(o.record, o.offset); }
  bool operator==(const Cell &o) const { return record == o.record && offset == o.offset; }
};

/// The field that an address is of, if it is one.
bool cell_of(const llvm::Value *address, const llvm::Module &module, Cell &cell);

/// A place in memory that a pointer can point to.
struct Target {
  enum Kind { function, block, global, local, cell } kind;
  llvm::Value *value = nullptr; ///< function, allocating call, global, alloca
  Cell field;
};

/// Flow-insensitive, fields of a type joined (Pearce, Kelly and Hankin, "Efficient field-sensitive pointer analysis of C", 2007,
/// with one instance for each type). Sound but for pointers made from integers, and bytes copied over fields of pointers.
class Pointers {
public:
  struct Counts { unsigned total = 0, by_field = 0, by_argument = 0, by_type = 0, unresolved = 0, max_targets = 0; };
  struct Warning { std::string kind; const llvm::Instruction *at; std::string what, remedy; };

  Pointers(llvm::Module &module, const Config &config, const Allocators &allocators, bool is_sound);

  /// Functions of the program or from outside that a call can reach, callbacks during the call among them.
  const std::vector<llvm::Function *> &callees(const llvm::CallBase &call) const;
  /// Targets of a pointer.
  std::vector<const Target *> targets(const llvm::Value *pointer) const;
  /// What can be stored in a field.
  std::vector<const Target *> contents(const Cell &cell) const;
  /// Fields that can hold a pointer to the block.
  std::vector<Cell> holders(const llvm::CallBase &block) const;
  /// Globals that can hold it.
  std::vector<const llvm::Value *> global_holders(const llvm::CallBase &block) const;
  const std::set<llvm::Function *> &called_later() const { return later; }
  const std::set<llvm::Function *> &thread_starts() const { return threads; }
  const Counts &counts() const { return sum; }
  const std::vector<Warning> &warnings() const { return doubts; }

private:
  unsigned node_of(const llvm::Value *value);
  unsigned target(const Target &t, const void *key);
  unsigned cell_target(const Cell &cell);
  unsigned content(unsigned target_index);
  void add_target(unsigned node, unsigned target_index);
  void add_copy(unsigned from, unsigned to);
  void add_initializer(const llvm::Constant *value, const llvm::Type *type, unsigned into, const Cell *within);
  void add_constraints();
  void add_call(llvm::CallBase &call);
  void link(llvm::CallBase &call, llvm::Function &callee);
  void link_callback(llvm::CallBase &call, llvm::Function &callee, bool is_later);
  void solve();
  void queue(unsigned node);
  void resolve_by_type(bool is_for_all);
  unsigned new_node();

  llvm::Module &module;
  const Config &config;
  const Allocators &allocators;
  std::vector<Target> all_targets;
  std::vector<unsigned> contents_of;                    ///< node of a target's content; 0: none yet
  llvm::DenseMap<const void *, unsigned> target_of_value;
  std::map<Cell, unsigned> target_of_cell;
  llvm::DenseMap<const llvm::Value *, unsigned> nodes;
  llvm::DenseMap<const llvm::Function *, unsigned> returns;
  struct Node {
    llvm::SparseBitVector<> points_to, done; ///< done: those whose consequences were drawn
    bool is_queued = false;
    std::vector<unsigned> copies, loads, stores, copies_content_to, copies_content_from;
    std::vector<std::pair<llvm::CallBase *, int>> calls; ///< -1: called; else argument that is called back, +64: later
  };
  std::vector<Node> graph;
  llvm::DenseSet<std::pair<unsigned, unsigned>> edges;
  std::vector<unsigned> work;
  llvm::DenseMap<const llvm::CallBase *, std::vector<llvm::Function *>> resolved;
  std::vector<llvm::CallBase *> indirect;
  std::set<const llvm::CallBase *> by_type_only;
  std::set<llvm::Function *> address_taken, later, threads;
  std::vector<Warning> doubts;
  Counts sum;
};

} // namespace stingy
