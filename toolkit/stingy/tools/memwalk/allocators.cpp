#include "memwalk/allocators.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

Allocators::Allocators(Module &module, const Config &config, const Facts &facts)
    : mallocs(config.malloc_like), frees(config.free_like) {
    // A server may define a function with a known name (such as `memalign`); then its body decides.
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
                is_changed |=
                    find_wrapper(function) || find_storing_wrapper(function) || find_freeing_wrapper(function, facts);
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
    const Allocator *how = callee ? malloc_of(*callee) : nullptr;
    if (how && how->unless >= 0 &&
        (unsigned(how->unless) >= call.arg_size() || !isa<ConstantPointerNull>(call.getArgOperand(how->unless))))
        return nullptr;
    return how;
}
const Allocator *Allocators::free_of(const CallBase &call) const {
    const Function *callee = dyn_cast<Function>(call.getCalledOperand()->stripPointerCasts());
    return callee ? free_of(*callee) : nullptr;
}

namespace {

/// Returns the index of the parameter that a value is, through casts, or -1. `is_raised` tells whether 0 may be
/// replaced by a small number.
int parameter_of(const Value *value, bool *is_raised = nullptr) {
    auto adds_nothing = [](const Value *one) {
        const auto *sum = dyn_cast<BinaryOperator>(one);
        const auto *number =
            sum && sum->getOpcode() == Instruction::Add ? dyn_cast<ConstantInt>(sum->getOperand(1)) : nullptr;
        return isa<CastInst>(one) || (number && number->isZero());
    };
    while (adds_nothing(value))
        value = cast<User>(value)->getOperand(0);
    const auto *argument = dyn_cast<Argument>(value);
    if (argument)
        return int(argument->getArgNo());
    SmallVector<const Value *, 2> choices;
    if (const auto *phi = dyn_cast<PHINode>(value))
        choices.assign(phi->op_begin(), phi->op_end());
    if (const auto *select = dyn_cast<SelectInst>(value))
        choices = {select->getTrueValue(), select->getFalseValue()};
    int found = -1;
    for (const Value *choice : choices) {
        const auto *number = dyn_cast<ConstantInt>(choice);
        int parameter = isa<PHINode>(choice) || isa<SelectInst>(choice) ? -1 : parameter_of(choice);
        if (!(number && number->getValue().ule(64)) && (parameter < 0 || (found >= 0 && found != parameter)))
            return -1;
        if (parameter >= 0)
            found = parameter;
    }
    if (is_raised && found >= 0)
        *is_raised = true;
    return found;
}

/// Returns the two factors of a product, including one that is checked for overflow.
std::pair<const Value *, const Value *> factors(const Value *value) {
    while (const auto *cast = dyn_cast<CastInst>(value))
        value = cast->getOperand(0);
    if (const auto *extract = dyn_cast<ExtractValueInst>(value); extract && extract->getIndices()[0] == 0)
        if (const auto *call = dyn_cast<IntrinsicInst>(extract->getAggregateOperand());
            call && call->getIntrinsicID() == Intrinsic::umul_with_overflow)
            return {call->getArgOperand(0), call->getArgOperand(1)};
    if (const auto *product = dyn_cast<BinaryOperator>(value); product && product->getOpcode() == Instruction::Mul)
        return {product->getOperand(0), product->getOperand(1)};
    return {nullptr, nullptr};
}

/// Whether a value is strlen(first parameter) + 1.
bool is_length_and_one(const Value *value) {
    while (const auto *cast = dyn_cast<CastInst>(value))
        value = cast->getOperand(0);
    const auto *sum = dyn_cast<BinaryOperator>(value);
    const auto *one = sum && sum->getOpcode() == Instruction::Add ? dyn_cast<ConstantInt>(sum->getOperand(1)) : nullptr;
    const Value *length = sum ? sum->getOperand(0) : nullptr;
    while (const auto *cast = dyn_cast_or_null<CastInst>(length))
        length = cast->getOperand(0);
    const auto *call = dyn_cast_or_null<CallBase>(length);
    return one && one->isOne() && call && call->getCalledFunction() &&
           call->getCalledFunction()->getName() == "strlen" && parameter_of(call->getArgOperand(0)) == 0;
}

/// Returns the blocks of the function that lead to its return, up to a call that does not return.
SmallPtrSet<const BasicBlock *, 16> returning_blocks(const Function &function, unsigned depth = 0);

bool never_returns(const CallBase &call, unsigned depth) {
    if (call.doesNotReturn())
        return true;
    const Function *callee = call.getCalledFunction();
    return callee && !callee->isDeclaration() && depth < 4 && returning_blocks(*callee, depth + 1).empty();
}

SmallPtrSet<const BasicBlock *, 16> returning_blocks(const Function &function, unsigned depth) {
    SmallPtrSet<const BasicBlock *, 16> reached, returning;
    SmallVector<const BasicBlock *, 16> work{&function.getEntryBlock()};
    while (!work.empty()) {
        const BasicBlock *block = work.pop_back_val();
        bool is_end = any_of(*block, [&](const Instruction &instruction) {
            const auto *call = dyn_cast<CallBase>(&instruction);
            return call && never_returns(*call, depth);
        });
        if (is_end || !reached.insert(block).second)
            continue;
        for (const BasicBlock *next : successors(block))
            work.push_back(next);
        if (isa<ReturnInst>(block->getTerminator()))
            returning.insert(block);
    }
    SmallVector<const BasicBlock *, 16> back(returning.begin(), returning.end());
    while (!back.empty())
        for (const BasicBlock *before : predecessors(back.pop_back_val()))
            if (reached.count(before) && returning.insert(before).second)
                back.push_back(before);
    return returning;
}

bool returns_first_argument(StringRef name) {
    static const char *const names[] = {"memcpy", "memmove", "memset", "strcpy", "strncpy", "strcat", "strncat"};
    return is_contained(names, name);
}

/// Whether a value depends on a parameter, through arithmetic and calls of functions from outside (such as strlen).
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

/// Determines what a wrapper does besides calling its allocator.
void Allocators::find_manner(const Function &function, const std::vector<const CallBase *> &sites,
                             const Allocator &inner, Allocator &wrapper) const {
    wrapper.place.file = "wrapper";
    wrapper.within = source_name(*cast<Function>(sites[0]->getCalledOperand()->stripPointerCasts()));
    auto returning = returning_blocks(function);
    wrapper.dies = inner.dies || returning.size() < function.size();
    wrapper.is_foreign |= inner.is_foreign;
    wrapper.is_plain = sites.size() == 1 && (inner.within.empty() || inner.is_plain);
    auto is_block = [&](const Value *value) { return is_contained(sites, value->stripPointerCasts()); };
    for (const BasicBlock &block : function) {
        if (!returning.count(&block))
            continue;
        for (const Instruction &instruction : block) {
            if (isa<StoreInst>(instruction) || isa<LoadInst>(instruction))
                wrapper.is_plain = false;
            const auto *call = dyn_cast<CallBase>(&instruction);
            if (!call || isa<DbgInfoIntrinsic>(call) || is_contained(sites, call))
                continue;
            const Function *callee = call->getCalledFunction();
            bool is_memset = isa<MemSetInst>(call) || (callee && callee->getName() == "memset");
            bool is_zero = (is_memset && isa<Constant>(call->getArgOperand(1)) &&
                            cast<Constant>(call->getArgOperand(1))->isNullValue()) ||
                           (callee && callee->getName() == "bzero");
            bool is_copy =
                wrapper.like == "strdup" && callee &&
                is_contained(ArrayRef<StringRef>{"strlen", "memcpy", "memmove", "strcpy"}, callee->getName());
            if (is_zero && is_block(call->getArgOperand(0)))
                wrapper.zeroes = true;
            else if (is_copy)
                continue;
            else if (!isa<IntrinsicInst>(call))
                wrapper.is_plain = false;
        }
    }
}

/// Whether the allocated size comes from the function's parameters. Records in `wrapper` how it does.
bool Allocators::take_size(const CallBase &site, Allocator &wrapper) const {
    const Allocator &inner = *malloc_of(site);
    auto argument = [&](int index) {
        return index >= 0 && unsigned(index) < site.arg_size() ? site.getArgOperand(index) : nullptr;
    };
    wrapper.zeroes |= inner.zeroes;
    if (!inner.type.empty() || inner.is_pool)
        return false;
    bool is_raised = false;
    const Value *bytes = argument(inner.size), *number = argument(inner.count), *old = argument(inner.pointer);
    int size = bytes ? parameter_of(bytes, &is_raised) : -1, count = number ? parameter_of(number) : -1;
    int pointer = old ? parameter_of(old) : -1;
    if (size < 0 && bytes && !number)
        if (auto [a, b] = factors(bytes); a && parameter_of(a) >= 0 && parameter_of(b) >= 0)
            size = parameter_of(b), count = parameter_of(a);
    if (pointer >= 0)
        wrapper.pointer = pointer;
    if (size >= 0) {
        wrapper.size = size;
        if (count >= 0)
            wrapper.count = count;
        // For calloc(1, n) only the size counts.
        return !number || count >= 0 || isa<ConstantInt>(number);
    }
    bool depends = !inner.like.empty() && site.arg_size() && depends_on_parameter(site.getArgOperand(0));
    if (!depends && !(bytes && depends_on_parameter(bytes)))
        return false;
    if (!inner.like.empty())
        wrapper.like = inner.like;
    if (wrapper.like.empty())
        wrapper.like = bytes && is_length_and_one(bytes) ? "strdup" : "computed";
    return true;
}

bool Allocators::find_wrapper(const Function &function) {
    if (!function.getReturnType()->isPointerTy() || function.size() > 40)
        return false;
    // The possible results are calls of allocators, null, and for a reallocation the old block.
    SetVector<const Value *> returned;
    for (const BasicBlock &block : function)
        if (const auto *ret = dyn_cast<ReturnInst>(block.getTerminator()))
            returned.insert(ret->getReturnValue());
    std::vector<const CallBase *> sites;
    for (unsigned i = 0; i < returned.size(); i++) {
        const Value *value = returned[i];
        if (const auto *phi = dyn_cast<PHINode>(value))
            returned.insert(phi->op_begin(), phi->op_end());
        else if (const auto *select = dyn_cast<SelectInst>(value))
            returned.insert(select->getTrueValue()), returned.insert(select->getFalseValue());
        else if (const auto *call = dyn_cast<CallBase>(value)) {
            const Function *callee = call->getCalledFunction();
            if (const Allocator *how = malloc_of(*call); how && how->through < 0)
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
    for (const CallBase *site : sites) {
        // A block that is also stored elsewhere is an object of this function.
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
                // A block that is filled in as a structure is an object, too, because a wrapper knows only bytes.
                if (const auto *gep = dyn_cast<GetElementPtrInst>(user);
                    gep && isa<StructType>(gep->getSourceElementType()))
                    return false;
            }
        }
        if (!take_size(*site, wrapper))
            return false;
    }
    add_wrapper(function, sites, wrapper);
    return true;
}

/// Finds a wrapper that stores the block where one of its parameters points.
bool Allocators::find_storing_wrapper(const Function &function) {
    if (function.size() > 40)
        return false;
    for (const Instruction &instruction : instructions(function)) {
        const auto *call = dyn_cast<CallBase>(&instruction);
        const Allocator *inner = call ? malloc_of(*call) : nullptr;
        if (!inner || inner->is_pool || inner->pool >= 0)
            continue;
        Allocator wrapper;
        if (inner->through >= 0) {
            if (unsigned(inner->through) < call->arg_size())
                wrapper.through = parameter_of(call->getArgOperand(inner->through));
        } else
            for (const User *user : call->users())
                if (const auto *store = dyn_cast<StoreInst>(user); store && store->getValueOperand() == call)
                    wrapper.through = parameter_of(store->getPointerOperand());
        if (wrapper.through < 0 || (!take_size(*call, wrapper) && inner->like.empty()))
            continue;
        if (wrapper.like.empty())
            wrapper.like = inner->like;
        add_wrapper(function, {call}, wrapper);
        return true;
    }
    return false;
}

void Allocators::add_wrapper(const Function &function, const std::vector<const CallBase *> &sites, Allocator wrapper) {
    find_manner(function, sites, *malloc_of(*sites[0]), wrapper);
    mallocs.emplace(function.getName().str(), wrapper);
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
                find_manner(function, {call}, *inner, wrapper);
                frees.emplace(function.getName().str(), wrapper);
                return true;
            }
    return false;
}

} // namespace stingy
