// Finds the size of an allocation.
#pragma once
#include "memwalk/objects.h"

namespace stingy {

/// Sizes of calls; keeps one range analysis per function.
class Sizes {
  public:
    Sizes(const Calls &calls);
    ~Sizes();
    Size of(const llvm::CallBase &call, const Allocator &how, const WrittenCall *written, uint64_t type_bytes);
    /// Combines the sizes at all sites of an object.
    static Size join(const Size &a, const Size &b);

  private:
    Size of_value(const llvm::Value *value, const llvm::CallBase &at, const std::string &written);
    struct Ranges;
    const Calls &calls;
    std::unique_ptr<Ranges> ranges;
};

} // namespace stingy
