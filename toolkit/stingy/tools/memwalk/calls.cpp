#include "memwalk/calls.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

Calls::Calls(Module &module, const Pointers &pointers) : pointers(pointers), module(module) {
    for (Function &function : module) {
        SetVector<Function *> called;
        for (Instruction &instruction : instructions(function)) {
            if (auto *store = dyn_cast<StoreInst>(&instruction)) {
                Cell cell;
                if (cell_of(store->getPointerOperand(), module, cell))
                    stores[cell].push_back(store);
            }
            auto *call = dyn_cast<CallBase>(&instruction);
            if (!call)
                continue;
            for (Function *callee : pointers.callees(*call)) {
                called.insert(callee);
                up[callee].push_back(call);
            }
        }
        if (!called.empty())
            down[&function].assign(called.begin(), called.end());
    }
}

const Functions &Calls::callees(const Function &function) const {
    static const Functions none;
    auto found = down.find(&function);
    return found == down.end() ? none : found->second;
}

const std::vector<CallBase *> &Calls::callers(const Function &function) const {
    static const std::vector<CallBase *> none;
    auto found = up.find(&function);
    return found == up.end() ? none : found->second;
}

bool Calls::changes_state(const Function &function, const Cell &cell) const {
    auto found = stores.find(cell);
    if (found == stores.end())
        return false;
    for (const StoreInst *store : found->second) {
        if (store->getFunction() == &function)
            return true;
        if (is_contained(callees(function), store->getFunction()))
            return true;
    }
    return false;
}

namespace {

struct Search {
    const Calls &calls;
    const std::function<bool(const CallBase &)> &within;
    const Cell *unchanged;
    Origins found;
    std::set<std::pair<const Value *, const Instruction *>> seen;
    unsigned steps = 0;

    void go(const Value *value, const Instruction *at) {
        // A search of this size is given up, and the result is reported as incomplete.
        if (++steps > 20000) {
            found.is_complete = false;
            return;
        }
        if (!seen.insert({value, at}).second)
            return;
        if (const auto *number = dyn_cast<ConstantInt>(value)) {
            if (number->getBitWidth() > 64) {
                found.is_complete = false;
                return;
            }
            found.all.push_back({nullptr, number->getValue().getSExtValue(), at});
        } else if (const auto *function = dyn_cast<Function>(value->stripPointerCasts())) {
            found.all.push_back({function, 0, at});
        } else if (isa<ConstantPointerNull>(value) || isa<UndefValue>(value)) {
        } else if (const auto *phi = dyn_cast<PHINode>(value)) {
            for (const Value *incoming : phi->incoming_values())
                go(incoming, at);
        } else if (const auto *select = dyn_cast<SelectInst>(value)) {
            go(select->getTrueValue(), at);
            go(select->getFalseValue(), at);
        } else if (const auto *cast = dyn_cast<CastInst>(value)) {
            go(cast->getOperand(0), at);
        } else if (const auto *freeze = dyn_cast<FreezeInst>(value)) {
            go(freeze->getOperand(0), at);
        } else if (const auto *argument = dyn_cast<Argument>(value)) {
            const auto &callers = calls.callers(*argument->getParent());
            if (callers.empty())
                found.is_complete = false;
            for (const CallBase *call : callers)
                if (!within(*call))
                    continue;
                else if (argument->getArgNo() < call->arg_size() &&
                         call->getArgOperand(argument->getArgNo())->getType() == argument->getType())
                    go(call->getArgOperand(argument->getArgNo()), call);
                else
                    found.is_complete = false; // called back from outside
        } else if (const auto *load = dyn_cast<LoadInst>(value)) {
            Cell cell;
            if (cell_of(load->getPointerOperand(), calls.module, cell)) {
                if (unchanged && cell == *unchanged)
                    return;
                // Initialisers and memset may have stored other values.
                found.is_complete = false;
                auto stores = calls.stores.find(cell);
                if (stores != calls.stores.end())
                    for (const StoreInst *store : stores->second)
                        go(store->getValueOperand(), at);
                // No code assigns it, as in constant tables.
                if (stores == calls.stores.end())
                    for (const Target *target : calls.pointers.contents(cell))
                        if (target->kind == Target::function)
                            found.all.push_back({cast_function(target->value), 0, at});
            } else
                found.is_complete = false;
        } else if (const auto *call = dyn_cast<CallBase>(value)) {
            bool is_seen = false;
            for (const Function *callee : calls.pointers.callees(*call))
                for (const BasicBlock &block : *callee)
                    if (const auto *ret = dyn_cast<ReturnInst>(block.getTerminator()); ret && ret->getReturnValue()) {
                        is_seen = true;
                        go(ret->getReturnValue(), at);
                    }
            if (!is_seen)
                found.is_complete = false;
        } else
            found.is_complete = false;
    }
    static const Function *cast_function(const Value *value) { return cast<Function>(value); }
};

} // namespace

Origins origins(const Calls &calls, const Value *value, const Instruction *at,
                const std::function<bool(const CallBase &)> &within, const Cell *unchanged) {
    Search search{calls, within, unchanged, {}, {}, 0};
    search.go(value, at);
    return std::move(search.found);
}

} // namespace stingy
