// Finds the possible targets of pointers: inclusion constraints over the whole program, solved once.
#pragma once
#include "memwalk/allocators.h"
#include "memwalk/cells.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
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
} // namespace llvm

namespace stingy {

/// Whether a function of the C library keeps no argument after it returns, except in its result.
bool keeps_nothing(llvm::StringRef function);
/// Returns the argument into which a function of the C library returns a pointer, or -1.
int returned_argument(llvm::StringRef function);

/// A place in memory that a pointer can point to.
struct Target {
    enum Kind { function, block, global, local, cell } kind;
    llvm::Value *value = nullptr; ///< function, allocating call, global, alloca
    Cell field;
};

/// Flow-insensitive analysis with joined fields of a type (Pearce, Kelly and Hankin, "Efficient field-sensitive
/// pointer analysis of C", 2007, with one instance for each type). A call through a pointer reaches functions of the
/// type that the source calls there, whatever else is stored in the same place: a call of another type is undefined
/// (C11, 6.3.2.3). Sound except for that and for what README.md lists as not followed (Limits); `is_sound` drops the
/// condition on types.
class Pointers {
  public:
    struct Counts {
        unsigned total = 0, by_field = 0, by_argument = 0, by_type = 0, unresolved = 0, max_targets = 0, narrowed = 0;
        uint64_t passed = 0; ///< targets that went along copies: what the solver's time grows with
    };
    struct Warning {
        std::string kind;
        const llvm::Instruction *at;
        std::string what, remedy;
        std::vector<std::string> objects = {};
    };

    Pointers(llvm::Module &module, const Config &config, const Allocators &allocators, const Facts &facts,
             bool is_sound);

    /// The functions of the program or from outside that a call can reach, including callbacks during the call.
    const std::vector<llvm::Function *> &callees(const llvm::CallBase &call) const;
    /// The targets of a pointer.
    std::vector<const Target *> targets(const llvm::Value *pointer) const;
    /// The targets that a field can hold.
    std::vector<const Target *> contents(const Cell &cell) const;
    /// The blocks that a call reallocates through its argument.
    std::vector<const Target *> resized(const llvm::CallBase &call) const;
    /// The fields that can hold a pointer to the block.
    const std::vector<const Cell *> &holders(const llvm::CallBase &block) const;
    /// The globals that can hold a pointer to the block.
    const std::vector<const llvm::Value *> &global_holders(const llvm::CallBase &block) const;
    const std::set<llvm::Function *> &called_later() const { return later; }
    const std::set<llvm::Function *> &thread_starts() const { return threads; }
    const std::vector<llvm::CallBase *> &indirect_calls() const { return indirect; }
    /// The calls of functions from outside that may keep their arguments.
    const std::vector<llvm::CallBase *> &calls_to_outside() const { return outside; }
    /// The calls of functions from outside with `free` as an argument.
    const std::vector<llvm::CallBase *> &frees_handed_out() const { return handed_out; }
    /// Whether the function frees and the configuration does not list the objects that are freed
    /// through its address.
    bool is_untold_free(const llvm::Function &function) const;
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
    std::vector<unsigned> contents_at(llvm::Value *address, llvm::Type *type);
    void add_access(llvm::Value *address, llvm::Type *type, unsigned node, bool is_store);
    unsigned variable_arguments();
    void add_constraints();
    void add_call(llvm::CallBase &call);
    void link(llvm::CallBase &call, llvm::Function &callee);
    void link_callback(llvm::CallBase &call, llvm::Function &callee, bool is_later);
    unsigned find(unsigned node) const;
    void join_cycles();
    void join_nodes(const std::vector<unsigned> &members);
    void draw(unsigned node, const llvm::SparseBitVector<> &fresh);
    void solve();
    void resolve_by_type(bool is_for_all);
    bool fits(const llvm::CallBase &call, const llvm::Function &function) const;
    void reach(llvm::CallBase &call, llvm::Function &function);
    void find_handed_out();
    void find_holders() const;
    std::string record_of(const Target &target) const;
    void report();
    unsigned new_node();

    llvm::Module &module;
    const Config &config;
    const Allocators &allocators;
    const Facts &facts;
    bool is_sound;
    std::vector<Target> all_targets;
    std::vector<unsigned> contents_of; ///< node of a target's content; 0: none yet
    llvm::DenseMap<const void *, unsigned> target_of_value;
    std::map<Cell, unsigned> target_of_cell;
    llvm::DenseMap<const llvm::Value *, unsigned> nodes;
    llvm::DenseMap<const llvm::Function *, unsigned> returns;
    llvm::DenseMap<const llvm::CallBase *, unsigned> resized_by; ///< node of what it reallocates
    struct Node {
        llvm::SparseBitVector<> points_to, passed, done; ///< passed on to copies; done: whose consequences were drawn
        bool is_to_pass = false, is_changed = false;     ///< since `passed`, since `done`
        void set_changed() { is_to_pass = is_changed = true; }
        std::vector<unsigned> copies, loads, stores, copies_content_to, copies_content_from;
        std::vector<std::pair<llvm::CallBase *, int>>
            calls; ///< -1: called; else argument that is called back, +64: later
    };
    std::vector<Node> graph;
    mutable std::vector<unsigned> stands_for; ///< of a node: the one that it was joined to
    llvm::DenseSet<std::pair<unsigned, unsigned>> edges;
    bool is_built = false, has_new_edges = false;
    std::vector<unsigned> order; ///< of nodes that are copied, before those that they are copied to
    llvm::DenseMap<const llvm::CallBase *, std::vector<llvm::Function *>> resolved;
    std::vector<llvm::CallBase *> indirect, outside, handed_out;
    std::set<const llvm::CallBase *> by_type_only;
    llvm::DenseMap<const llvm::CallBase *, const std::set<Signature> *> called_as; ///< null: unknown
    llvm::DenseMap<const llvm::CallBase *, std::vector<llvm::Function *>> of_other_type;
    llvm::SetVector<llvm::Function *> address_taken; ///< in the order of the program, which is that of the callees
    std::set<llvm::Function *> later, threads;
    mutable std::vector<std::vector<const Cell *>> held_by_field; ///< of blocks, by target; empty until asked for
    mutable std::vector<std::vector<const llvm::Value *>> held_by_global;
    std::vector<Warning> doubts;
    Counts sum;
};

} // namespace stingy
