// The effects of pieces of code on objects, independent of the state before.
#pragma once
#include "memwalk/objects.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"

namespace stingy {

/// A set of objects, by their number.
using Set = llvm::BitVector;
inline Set unite(Set a, const Set &b) {
    a |= b;
    return a;
}
inline Set without(Set a, const Set &b) {
    a.reset(b);
    return a;
}
inline Set meet(Set a, const Set &b) {
    a &= b;
    return a;
}

struct Effect {
    Set frees, allocs; ///< on every path, and not allocated again; on some path
};
struct After {
    Set dead, maybe_live; ///< dead at the end whatever it is now; maybe live whatever it is now
};

class Effects {
  public:
    using Blocks = llvm::SetVector<const llvm::BasicBlock *>;
    Effects(const Calls &calls, const StageGraph &graph, const Objects &objects);
    const Effect &effect(const llvm::CallBase &call);
    /// Returns the objects that a call of the function always frees.
    Set frees_of(const llvm::Function &function);
    /// Returns the state at `until`, or at the end of the block, given `state` at its start.
    Set through(Set state, const llvm::BasicBlock &block, const llvm::Instruction *until);
    /// Returns the objects freed on every path to the start of each block.
    std::map<const llvm::BasicBlock *, Set> before(const Blocks &blocks,
                                                   const std::set<const llvm::BasicBlock *> &starts);
    /// Returns the state after `from`, or at the start of the block, given `state` at its end.
    After back(After state, const llvm::BasicBlock &block, const llvm::Instruction *from);
    /// Returns the state at the end of each block.
    std::map<const llvm::BasicBlock *, After> after(const Blocks &blocks);
    /// Whether a call's effects on its arguments' objects concern the current request.
    bool is_about_own(const llvm::CallBase &call) const;
    const Set none, every;

  private:
    void find_allocs();
    bool is_single(unsigned object) const;
    bool is_common(const std::string &record) const;
    bool is_own(const llvm::Value *pointer) const;
    bool is_own(const llvm::Value *pointer, std::set<const llvm::Value *> &seen) const;
    bool is_own_result(const llvm::CallBase &call, std::set<const llvm::Value *> &seen) const;
    Effect effect_of(const llvm::CallBase &call);
    /// The calls of a block that affect objects, in order.
    const std::vector<std::pair<const llvm::CallBase *, const Effect *>> &acting(const llvm::BasicBlock &block);
    const Set &absent(const llvm::BasicBlock &from, const llvm::BasicBlock &to);
    Set find_absent(const llvm::BasicBlock &from, const llvm::BasicBlock &to) const;

    const Calls &calls;
    const StageGraph &graph;
    const Objects &objects;
    std::map<const llvm::Function *, Set> allocs, frees;
    std::map<const llvm::CallBase *, Effect> effects;
    std::map<const llvm::BasicBlock *, std::vector<std::pair<const llvm::CallBase *, const Effect *>>> acting_in;
    std::map<std::pair<const llvm::BasicBlock *, const llvm::BasicBlock *>, Set> absent_on;
    std::set<std::string> owned;              ///< structures that belong to requests
    std::set<const llvm::Value *> own_values; ///< requests whose state a dispatcher looks at
};

} // namespace stingy
