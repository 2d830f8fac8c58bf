#include "memwalk/cells.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

std::string plain_name(const StructType &type) {
    if (!type.hasName())
        return "";
    StringRef name = type.getName();
    for (const char *prefix : {"struct.", "union.", "class."})
        name.consume_front(prefix);
    if (name == "anon" || name.starts_with("anon."))
        return "";
    // The linker adds numbers to types with equal names and different definitions; these types are joined here.
    size_t dot = name.rfind('.');
    if (dot != StringRef::npos && dot + 1 < name.size() && all_of(name.substr(dot + 1), isDigit))
        name = name.substr(0, dot);
    return name.str();
}

void descend(Type *type, uint64_t offset, const DataLayout &layout, Cell &cell) {
    while (true) {
        if (auto *record = dyn_cast<StructType>(type)) {
            if (std::string name = plain_name(*record); !name.empty())
                cell = {name, offset};
            const StructLayout *fields = layout.getStructLayout(record);
            if (record->getNumElements() == 0 || offset >= fields->getSizeInBytes())
                return;
            unsigned element = fields->getElementContainingOffset(offset);
            offset -= fields->getElementOffset(element);
            type = record->getElementType(element);
        } else if (auto *array = dyn_cast<ArrayType>(type)) {
            uint64_t size = layout.getTypeAllocSize(array->getElementType());
            if (size == 0)
                return;
            offset %= size;
            type = array->getElementType();
            if (!isa<StructType>(type) && !isa<ArrayType>(type)) {
                if (!cell.record.empty())
                    cell.offset -= std::min(cell.offset, offset);
                return;
            }
        } else
            return;
    }
}

bool cell_at(Type *declared, uint64_t offset, const DataLayout &layout, Cell &cell) {
    cell = {};
    descend(declared, offset, layout, cell);
    if (const auto *record = dyn_cast<StructType>(declared); cell.record.empty() && record && record->hasName())
        cell = {record->getName().str(), offset};
    return !cell.record.empty();
}

/// Whether the address stays within the first element of an array.
static bool index_is_first(const GEPOperator &gep) {
    const auto *first = dyn_cast<ConstantInt>(*gep.idx_begin());
    return first && first->isZero();
}

bool cell_of(const Value *address, const Module &module, Cell &cell) {
    const DataLayout &layout = module.getDataLayout();
    if (const auto *global = dyn_cast<GlobalVariable>(address)) {
        Cell found;
        descend(global->getValueType(), 0, layout, found);
        if (found.record.empty())
            return false;
        cell = found;
        return true;
    }
    const auto *gep = dyn_cast<GEPOperator>(address);
    if (!gep)
        return false;
    Type *type = gep->getSourceElementType();
    if (type->isIntegerTy(8)) {
        // Since LLVM 19 constants are addressed by bytes.
        APInt offset(64, 0);
        const auto *global = dyn_cast<GlobalVariable>(gep->getPointerOperand());
        if (!global || !gep->accumulateConstantOffset(layout, offset) || offset.isNegative())
            return false;
        Cell found;
        descend(global->getValueType(), offset.getZExtValue(), layout, found);
        if (found.record.empty())
            return false;
        cell = found;
        return true;
    }
    Cell found;
    bool is_field = false;
    uint64_t offset = 0; // offset from the beginning of the innermost named structure
    auto index = gep->idx_begin();
    if (index == gep->idx_end())
        return false;
    for (++index; index != gep->idx_end(); ++index) {
        if (auto *record = dyn_cast<StructType>(type)) {
            unsigned element = cast<ConstantInt>(*index)->getZExtValue();
            std::string name = plain_name(*record);
            if (!name.empty())
                found = {name, 0}, offset = 0;
            offset += layout.getStructLayout(record)->getElementOffset(element);
            type = record->getElementType(element);
            is_field = true;
        } else if (auto *array = dyn_cast<ArrayType>(type))
            type = array->getElementType();
        else
            return false;
    }
    // An element of an array that is a field.
    if (!is_field)
        return isa<ArrayType>(gep->getSourceElementType()) && isa<GEPOperator>(gep->getPointerOperand()) &&
               cell_of(gep->getPointerOperand(), module, cell);
    if (found.record.empty()) {
        // A structure passed by value is addressed by the types of its registers.
        Cell base;
        const auto *local = dyn_cast<AllocaInst>(gep->getPointerOperand());
        const auto *registers = dyn_cast<StructType>(gep->getSourceElementType());
        if (local && registers && registers->isLiteral() && index_is_first(*gep) &&
            cell_at(local->getAllocatedType(), offset, layout, base)) {
            cell = base;
            return true;
        }
        if (cell_of(gep->getPointerOperand(), module, base))
            found = {base.record, base.offset};
        else
            found.record = cast<StructType>(gep->getSourceElementType())->hasName()
                               ? cast<StructType>(gep->getSourceElementType())->getName().str()
                               : "(unnamed)";
        offset += found.offset;
    }
    found.offset = offset;
    cell = found;
    return true;
}

} // namespace stingy
