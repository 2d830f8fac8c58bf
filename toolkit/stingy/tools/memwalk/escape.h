// Finds blocks that never outlive the call that made them.
#pragma once
#include "memwalk/stages.h"
#include "llvm/ADT/SmallVector.h"

namespace stingy {

/// The places that a block's address reaches from one value on (after Choi et al., "Escape analysis for Java", 1999:
/// a summary of each parameter, callees before callers). Kept: a field, a global, or a function from outside may have
/// it.
struct Course {
    bool is_kept = false, is_freed = false, is_returned = false;
    std::set<unsigned> into; ///< parameters of this function: it is stored where they point to
};

class Escapes {
  public:
    /// `is_request`: whether an allocating call or a local variable is a request. Blocks that a request holds are no
    /// temporaries.
    Escapes(const Calls &calls, const Allocators &allocators, const StageGraph &graph,
            std::function<bool(const llvm::Value &)> is_request);
    /// Whether the block of an allocating call lives only in local variables of the calling function or of callers
    /// that receive it, and is freed there; it then never waits with a request. False if such a function may run
    /// stages meanwhile.
    bool is_temporary(const llvm::CallBase &call);

  private:
    enum Kind { block, local }; ///< the block's address, or that of a local variable that holds it
    using Key = std::pair<const llvm::Value *, Kind>;
    struct Walk {
        Course course;
        std::vector<Key> work;
        std::set<Key> seen;
        std::set<const llvm::Value *> holders;
        llvm::SmallVector<const llvm::Instruction *, 16> uses;
        unsigned steps = 0;
    };
    void follow(Walk &walk);
    void use(Walk &walk, const Key &key, const llvm::Use &use);
    void store_to(Walk &walk, const llvm::Value *address);
    void pass(Walk &walk, const llvm::CallBase &call, unsigned argument, Kind kind);
    bool only_prints(const llvm::Function &function);
    const Course &of_parameter(const llvm::Argument &parameter, Kind kind);
    bool may_run_stages(const llvm::Instruction &use, const std::vector<unsigned> &stages) const;

    const Calls &calls;
    const Allocators &allocators;
    const StageGraph &graph;
    std::function<bool(const llvm::Value &)> is_request;
    std::map<Key, Course> of_parameters;
    std::map<const llvm::Function *, bool> printing;
    std::set<const llvm::Function *> running; ///< functions that run stages, or call one that does
};

} // namespace stingy
