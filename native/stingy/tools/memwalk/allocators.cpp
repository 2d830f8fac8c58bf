#include "memwalk/allocators.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

Allocators::Allocators(Module &module, const Config &config, const Facts &facts)
    : mallocs(config.malloc_like), frees(config.free_like) {
    // A server's own function may have the name of a known one (its own `memalign`): then its body says what it is.
    for (auto *table : {&mallocs, &frees})
        for (auto it = table->begin(); it != table->end();) {
            const Function *function = module.getFunction(it->first);
            bool is_own = it->second.place.line == 0 && function && !function->isDeclaration();
            it = is_own ? table->erase(it) : std::next(it);
        }
    bool is_changed = true;
    while (is_changed) {
        is_changed = false;
        for (const Function &function : module)
            if (!function.isDeclaration() && !is_either(function))
                is_changed |= find_wrapper(function) || find_freeing_wrapper(function, facts);
    }
}

const Allocator *Allocators::malloc_of(const Function &function) const {
    auto found = mallocs.find(function.getName().str());
    return found == mallocs.end() ? nullptr : &found->second;
}
const Allocator *Allocators::free_of(const Function &function) const {
    auto found = frees.find(function.getName().str());
    return found == frees.end() ? nullptr : &found->second;
}
const Allocator *Allocators::malloc_of(const CallBase &call) const {
    const Function *callee = dyn_cast<Function>(call.getCalledOperand()->stripPointerCasts());
    return callee ? malloc_of(*callee) : nullptr;
}
const Allocator *Allocators::free_of(const CallBase &call) const {
    const Function *callee = dyn_cast<Function>(call.getCalledOperand()->stripPointerCasts());
    return callee ? free_of(*callee) : nullptr;
}

namespace {

/// The parameter that a value is, through casts, or -1.
int parameter_of(const Value *value) {
    while (const auto *cast = dyn_cast<CastInst>(value))
        value = cast->getOperand(0);
    const auto *argument = dyn_cast<Argument>(value);
    return argument ? int(argument->getArgNo()) : -1;
}

bool returns_first_argument(StringRef name) {
    static const char *const names[] = {"memcpy", "memmove", "memset", "strcpy", "strncpy", "strcat", "strncat"};
    return is_contained(names, name);
}

/// Whether a value depends on a parameter, through arithmetic and calls of functions from outside (strlen).
bool depends_on_parameter(const Value *value, unsigned depth = 0) {
    if (isa<Argument>(value))
        return true;
    const auto *instruction = dyn_cast<Instruction>(value);
    if (!instruction || depth > 8 || isa<LoadInst>(instruction))
        return false;
    if (const auto *call = dyn_cast<CallBase>(instruction)) {
        for (const Value *argument : call->args())
            if (depends_on_parameter(argument, depth + 1))
                return true;
        return false;
    }
    for (const Value *operand : instruction->operands())
        if (depends_on_parameter(operand, depth + 1))
            return true;
    return false;
}

} // namespace

bool Allocators::find_wrapper(const Function &function) {
    if (!function.getReturnType()->isPointerTy() || function.size() > 40)
        return false;
    // What is returned: calls of allocators, null, and for a reallocation the old block.
    SetVector<const Value *> returned;
    for (const BasicBlock &block : function)
        if (const auto *ret = dyn_cast<ReturnInst>(block.getTerminator()))
            returned.insert(ret->getReturnValue());
    SmallVector<const CallBase *, 4> sites;
    for (unsigned i = 0; i < returned.size(); i++) {
        const Value *value = returned[i];
        if (const auto *phi = dyn_cast<PHINode>(value))
            returned.insert(phi->op_begin(), phi->op_end());
        else if (const auto *select = dyn_cast<SelectInst>(value))
            returned.insert(select->getTrueValue()), returned.insert(select->getFalseValue());
        else if (const auto *call = dyn_cast<CallBase>(value)) {
            const Function *callee = call->getCalledFunction();
            if (malloc_of(*call))
                sites.push_back(call);
            else if (callee && callee->isDeclaration() && call->arg_size() && returns_first_argument(callee->getName()))
                returned.insert(call->getArgOperand(0));
            else
                return false;
        } else if (!isa<ConstantPointerNull>(value) && !isa<UndefValue>(value) && !isa<Argument>(value))
            return false;
    }
    if (sites.empty())
        return false;
    Allocator wrapper;
    bool is_sized = false;
    for (const CallBase *site : sites) {
        // A block that is also kept somewhere else is an object of this function's own.
        SmallVector<const Value *, 8> work{site};
        SmallPtrSet<const Value *, 8> seen;
        while (!work.empty()) {
            const Value *value = work.pop_back_val();
            if (!seen.insert(value).second)
                continue;
            for (const User *user : value->users()) {
                if (const auto *store = dyn_cast<StoreInst>(user); store && store->getValueOperand() == value)
                    return false;
                if (isa<PHINode>(user) || isa<SelectInst>(user) || isa<CastInst>(user))
                    work.push_back(user);
                // One that is filled in as a structure is an object, too: a wrapper knows only bytes.
                if (const auto *gep = dyn_cast<GetElementPtrInst>(user);
                    gep && isa<StructType>(gep->getSourceElementType()))
                    return false;
            }
        }
        const Allocator &inner = *malloc_of(*site);
        wrapper.zeroes |= inner.zeroes;
        if (!inner.type.empty())
            return false;
        int size = inner.size >= 0 && unsigned(inner.size) < site->arg_size()
                       ? parameter_of(site->getArgOperand(inner.size))
                       : -1;
        int count = inner.count >= 0 && unsigned(inner.count) < site->arg_size()
                        ? parameter_of(site->getArgOperand(inner.count))
                        : -1;
        int pointer = inner.pointer >= 0 && unsigned(inner.pointer) < site->arg_size()
                          ? parameter_of(site->getArgOperand(inner.pointer))
                          : -1;
        if (size >= 0) {
            is_sized = true;
            wrapper.size = size;
            if (count >= 0)
                wrapper.count = count;
            // calloc(1, n): the size alone.
            if (inner.count >= 0 && count < 0 && !isa<ConstantInt>(site->getArgOperand(inner.count)))
                return false;
            if (pointer >= 0)
                wrapper.pointer = pointer;
        } else {
            if (!inner.like.empty())
                wrapper.like = inner.like;
            bool depends = !inner.like.empty() && site->arg_size() && depends_on_parameter(site->getArgOperand(0));
            if (inner.size >= 0 && unsigned(inner.size) < site->arg_size())
                depends |= depends_on_parameter(site->getArgOperand(inner.size));
            if (!depends)
                return false;
            is_sized = true;
            if (wrapper.like.empty())
                wrapper.like = "computed";
            if (pointer >= 0)
                wrapper.pointer = pointer;
        }
    }
    if (!is_sized)
        return false;
    wrapper.place.file = "wrapper";
    mallocs.emplace(function.getName().str(), wrapper);
    return true;
}

bool Allocators::find_freeing_wrapper(const Function &function, const Facts &facts) {
    if (function.size() > 12)
        return false;
    auto voids = facts.void_parameters.find(source_name(function));
    if (voids == facts.void_parameters.end())
        return false;
    for (const Instruction &instruction : instructions(function))
        if (const auto *call = dyn_cast<CallBase>(&instruction))
            if (const Allocator *inner = free_of(*call);
                inner && inner->pointer >= 0 && unsigned(inner->pointer) < call->arg_size()) {
                int parameter = parameter_of(call->getArgOperand(inner->pointer));
                if (parameter < 0 || !voids->second.count(std::to_string(parameter)))
                    continue;
                Allocator wrapper;
                wrapper.pointer = parameter;
                wrapper.place.file = "wrapper";
                frees.emplace(function.getName().str(), wrapper);
                return true;
            }
    return false;
}

} // namespace stingy
