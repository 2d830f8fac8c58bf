// Fields as places in memory, whichever object holds them.
#pragma once
#include <cstdint>
#include <string>
#include <tuple>

namespace llvm {
class DataLayout;
class Module;
class StructType;
class Type;
class Value;
} // namespace llvm

namespace stingy {

/// A field of a structure type, whichever structure holds it: named by the innermost structure with a name, and the
/// offset in bytes from its begin. Fields of unnamed structures and unions count from the named one around them.
struct Cell {
    std::string record;
    uint64_t offset = 0;
    bool operator<(const Cell &o) const { return std::tie(record, offset) < std::tie(o.record, o.offset); }
    bool operator==(const Cell &o) const { return record == o.record && offset == o.offset; }
};

/// The field that an address is of, if it is one.
bool cell_of(const llvm::Value *address, const llvm::Module &module, Cell &cell);

/// A structure's name in the source; empty if it has none.
std::string plain_name(const llvm::StructType &type);
/// Walks `offset` bytes into a type, to the innermost named structure.
void descend(llvm::Type *type, uint64_t offset, const llvm::DataLayout &layout, Cell &cell);
/// The field at an offset of a variable's type, as `cell_of` names it; false: it is in no structure.
bool cell_at(llvm::Type *declared, uint64_t offset, const llvm::DataLayout &layout, Cell &cell);

} // namespace stingy
