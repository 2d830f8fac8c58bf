// The call graph, and the constants that can reach a value along it.
#pragma once
#include "memwalk/pointers.h"
#include <functional>
#include <map>
#include <set>
#include <vector>

namespace stingy {

using Functions = std::vector<llvm::Function *>;

struct Calls {
    Calls(llvm::Module &module, const Pointers &pointers);
    const Functions &callees(const llvm::Function &function) const;
    const std::vector<llvm::CallBase *> &callers(const llvm::Function &function) const;
    /// Whether the function, or one that it calls, stores the field.
    bool changes_state(const llvm::Function &function, const Cell &cell) const;
    const Pointers &pointers;
    llvm::Module &module;
    std::map<Cell, std::vector<llvm::StoreInst *>> stores; ///< of each field
    std::map<const llvm::Function *, Functions> down;
    std::map<const llvm::Function *, std::vector<llvm::CallBase *>> up;
};

/// A constant that reaches a value, and the last instruction in the searched code that contains it.
struct Origin {
    const llvm::Function *function = nullptr; ///< a function, or
    int64_t number = 0;
    const llvm::Instruction *at = nullptr;
};

/// The constants that can be in `value` when `at` runs. `within` decides which calls count. Loads of the field
/// `unchanged` add nothing. is_complete: no other value is possible.
struct Origins {
    std::vector<Origin> all;
    bool is_complete = true;
};
Origins origins(const Calls &calls, const llvm::Value *value, const llvm::Instruction *at,
                const std::function<bool(const llvm::CallBase &)> &within, const Cell *unchanged = nullptr);

} // namespace stingy
