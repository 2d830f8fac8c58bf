// Fields as places in memory, independent of the object that holds them.
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

/// A field of a structure type, whichever structure holds it: the innermost named structure and the offset in bytes
/// from its beginning. Fields of unnamed structures and unions belong to the enclosing named one.
struct Cell {
    std::string record;
    uint64_t offset = 0;
    bool operator<(const Cell &o) const { return std::tie(record, offset) < std::tie(o.record, o.offset); }
    bool operator==(const Cell &o) const { return record == o.record && offset == o.offset; }
};

/// Finds the field at an address; false if there is none.
bool cell_of(const llvm::Value *address, const llvm::Module &module, Cell &cell);

/// A structure's name in the source; empty if it has none.
std::string plain_name(const llvm::StructType &type);
/// Walks `offset` bytes into a type, to the innermost named structure.
void descend(llvm::Type *type, uint64_t offset, const llvm::DataLayout &layout, Cell &cell);
/// Finds the field at an offset in a variable's type, named like in `cell_of`; false if it is in no structure.
bool cell_at(llvm::Type *declared, uint64_t offset, const llvm::DataLayout &layout, Cell &cell);

} // namespace stingy
