// Which functions allocate and free: those of the C library and of the configuration, and wrappers around them.
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

/// Functions by their linked name. A wrapper returns what an allocator gave it, or stores it where a parameter points
/// to, of a size that its caller chose, and keeps it nowhere; a freeing wrapper hands a `void *` parameter on. The
/// calls of a wrapper are the sites, not the call within.
class Allocators {
  public:
    Allocators(llvm::Module &module, const Config &config, const Facts &facts);
    /// What the call allocates by, or null. `is_free`: what it frees by.
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
