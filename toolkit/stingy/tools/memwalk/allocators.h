// Finds functions that allocate and free: those of the C library and of the configuration, and their wrappers.
#pragma once
#include "input/config.h"
#include "input/program.h"
#include <map>
#include <string>
#include <vector>

namespace llvm {
class CallBase;
class Function;
class Module;
} // namespace llvm

namespace stingy {

/// Functions by their linked name. A wrapper obtains a block from an allocator with a size that its caller chose, and
/// returns it or stores it where a parameter points, but keeps it nowhere. A freeing wrapper passes a `void *`
/// parameter on. The sites are the calls of a wrapper, not the call within.
class Allocators {
  public:
    Allocators(llvm::Module &module, const Config &config, const Facts &facts);
    /// Returns the allocator that the call uses, or null. `is_free`: the function with which it frees.
    const Allocator *malloc_of(const llvm::CallBase &call) const;
    const Allocator *free_of(const llvm::CallBase &call) const;
    const Allocator *malloc_of(const llvm::Function &function) const;
    const Allocator *free_of(const llvm::Function &function) const;
    bool is_either(const llvm::Function &function) const { return malloc_of(function) || free_of(function); }

  private:
    bool find_wrapper(const llvm::Function &function);
    bool find_storing_wrapper(const llvm::Function &function);
    bool take_size(const llvm::CallBase &site, Allocator &wrapper) const;
    void find_manner(const llvm::Function &function, const std::vector<const llvm::CallBase *> &sites,
                     const Allocator &inner, Allocator &wrapper) const;
    void add_wrapper(const llvm::Function &function, const std::vector<const llvm::CallBase *> &sites,
                     Allocator wrapper);
    bool find_freeing_wrapper(const llvm::Function &function, const Facts &facts);
    std::map<std::string, Allocator> mallocs, frees;
};

} // namespace stingy
