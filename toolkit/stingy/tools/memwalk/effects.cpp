#include "memwalk/effects.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

Effects::Effects(const Calls &calls, const StageGraph &graph, const Objects &objects)
    : none(objects.all.size()), every(objects.all.size(), true), calls(calls), graph(graph), objects(objects) {
    owned = objects.request_records;
    for (const Object &object : objects.all)
        if (object.scope == Object::request && !object.record.empty())
            owned.insert(object.record);
    for (const Function &function : calls.module)
        for (const Instruction &instruction : instructions(function))
            if (const auto *load = dyn_cast<LoadInst>(&instruction)) {
                Cell cell;
                if (cell_of(load->getPointerOperand(), calls.module, cell) && graph.dispatchers.count(&function) &&
                    any_of(graph.states, [&](const StateCell &state) { return state.cell == cell; }))
                    if (const auto *gep = dyn_cast<GEPOperator>(load->getPointerOperand()))
                        own_values.insert(gep->getPointerOperand());
            }
    find_allocs();
}

void Effects::find_allocs() {
    std::map<const Function *, std::set<const Function *>> down;
    for (const Function &function : calls.module) {
        Set own = none;
        for (const Instruction &instruction : instructions(function))
            if (const auto *call = dyn_cast<CallBase>(&instruction)) {
                if (auto found = objects.object_of.find(call); found != objects.object_of.end())
                    own.set(found->second);
                if (!graph.of_others.count(call))
                    for (const Function *callee : calls.pointers.callees(*call))
                        if (!graph.outside.count(callee))
                            down[&function].insert(callee);
            }
        allocs[&function] = own;
    }
    bool is_changed = true;
    while (is_changed) {
        is_changed = false;
        for (auto &[function, callees] : down)
            for (const Function *callee : callees) {
                Set next = unite(allocs[function], allocs[callee]);
                if (next != allocs[function])
                    allocs[function] = next, is_changed = true;
            }
    }
}

bool Effects::is_single(unsigned object) const {
    return objects.all[object].per_request == std::optional<uint64_t>(1);
}

/// Whether all requests share a structure: start-up allocates it, or a global points to it.
bool Effects::is_common(const std::string &record) const {
    for (const Object &object : objects.all) {
        if (object.record != record || object.is_request)
            continue;
        for (const auto *list : {&object.alloc, &object.realloc})
            for (const Site &site : *list)
                if (site.stages.empty() || !calls.pointers.global_holders(*site.call).empty())
                    return true;
    }
    return false;
}

/// Whether a pointer leads to data of the current request: it comes from a parameter, from the tested request or from
/// an allocation here, through fields that requests own. A pointer from a global or a list may lead to any request.
bool Effects::is_own(const Value *pointer) const {
    std::set<const Value *> seen;
    return is_own(pointer, seen);
}

bool Effects::is_own(const Value *pointer, std::set<const Value *> &seen) const {
    if (own_values.count(pointer) || !seen.insert(pointer).second)
        return true; // a value that goes round a loop adds nothing
    if (seen.size() > 64)
        return false;
    if (const auto *cast = dyn_cast<CastInst>(pointer))
        return is_own(cast->getOperand(0), seen);
    if (const auto *gep = dyn_cast<GEPOperator>(pointer))
        return is_own(gep->getPointerOperand(), seen);
    if (const auto *load = dyn_cast<LoadInst>(pointer)) {
        Cell cell;
        if (!cell_of(load->getPointerOperand(), calls.module, cell) || !owned.count(cell.record))
            return false;
        // A request's pointer to another request, or to data that leads to any request.
        bool is_other = false, is_pool = false;
        for (const Target *target : calls.pointers.targets(pointer))
            if (target->kind == Target::block)
                if (auto known = objects.object_of.find(cast<CallBase>(target->value));
                    known != objects.object_of.end()) {
                    const Object &object = objects.all[known->second];
                    is_other |= object.record == cell.record || (object.is_request && is_common(cell.record));
                    is_pool |= object.is_pool;
                }
        if (is_other && !is_pool)
            return false;
        return is_own(load->getPointerOperand(), seen);
    }
    if (const auto *phi = dyn_cast<PHINode>(pointer))
        return all_of(phi->incoming_values(), [&](const Value *one) { return is_own(one, seen); });
    if (const auto *select = dyn_cast<SelectInst>(pointer))
        return is_own(select->getTrueValue(), seen) && is_own(select->getFalseValue(), seen);
    if (const auto *call = dyn_cast<CallBase>(pointer))
        return is_own_result(*call, seen);
    return isa<Argument>(pointer) || isa<AllocaInst>(pointer) || isa<ConstantPointerNull>(pointer) ||
           isa<UndefValue>(pointer);
}

/// A call returns data of the current request if the callee allocates it, gets it, or owns it.
bool Effects::is_own_result(const CallBase &call, std::set<const Value *> &seen) const {
    if (objects.object_of.count(&call))
        return true;
    const auto &callees = calls.pointers.callees(call);
    if (callees.empty())
        return false;
    for (const Function *callee : callees) {
        if (callee->isDeclaration()) {
            int same = returned_argument(callee->getName());
            if (same < 0 || unsigned(same) >= call.arg_size() || !is_own(call.getArgOperand(same), seen))
                return false;
            continue;
        }
        for (const BasicBlock &block : *callee)
            if (const auto *ret = dyn_cast<ReturnInst>(block.getTerminator());
                ret && ret->getReturnValue() && !is_own(ret->getReturnValue(), seen))
                return false;
    }
    return all_of(call.args(), [&](const Value *argument) {
        return !argument->getType()->isPointerTy() || isa<Constant>(argument) || is_own(argument, seen);
    });
}

bool Effects::is_about_own(const CallBase &call) const {
    for (const Value *argument : call.args()) {
        if (!argument->getType()->isPointerTy() || is_own(argument))
            continue;
        for (const Target *target : calls.pointers.targets(argument))
            if (target->kind == Target::block)
                if (auto known = objects.object_of.find(cast<CallBase>(target->value));
                    known != objects.object_of.end() && objects.all[known->second].scope == Object::request)
                    return false;
    }
    return true;
}

Effect Effects::effect_of(const CallBase &call) {
    Effect effect{none, none};
    if (graph.of_others.count(&call))
        return effect;
    bool is_mine = is_about_own(call);
    if (auto found = objects.freed_by.find(&call);
        is_mine && found != objects.freed_by.end() && found->second.size() == 1 && is_single(found->second[0]))
        effect.frees.set(found->second[0]);
    if (auto found = objects.object_of.find(&call); found != objects.object_of.end())
        effect.allocs.set(found->second);
    const auto &callees = calls.pointers.callees(call);
    Set common = every;
    bool is_any = false;
    for (const Function *callee : callees) {
        if (objects.object_of.count(&call) || objects.freed_by.count(&call))
            continue;
        is_any = true;
        // A function that is passed to code outside may or may not be called.
        if (callee->isDeclaration() || graph.outside.count(callee)) {
            common = none;
            continue;
        }
        effect.allocs |= allocs[callee];
        common &= frees_of(*callee);
    }
    if (is_any && is_mine)
        effect.frees |= common;
    return effect;
}

const Effect &Effects::effect(const CallBase &call) {
    auto found = effects.find(&call);
    if (found == effects.end())
        found = effects.emplace(&call, effect_of(call)).first;
    return found->second;
}

/// Returns the objects that a call of the function always frees.
Set Effects::frees_of(const Function &function) {
    auto found = frees.find(&function);
    if (found != frees.end())
        return found->second;
    frees.emplace(&function, none); // meanwhile a recursive call is assumed to free nothing
    SetVector<const BasicBlock *> blocks;
    for (const BasicBlock &block : function)
        blocks.insert(&block);
    Set result = every;
    auto in = before(blocks, {&function.getEntryBlock()});
    bool returns = false;
    for (const BasicBlock &block : function)
        if (isa<ReturnInst>(block.getTerminator()) && in.count(&block)) {
            returns = true;
            result &= through(in[&block], block, nullptr);
        }
    if (!returns)
        result = none;
    return frees[&function] = result;
}

const std::vector<std::pair<const CallBase *, const Effect *>> &Effects::acting(const BasicBlock &block) {
    auto known = acting_in.find(&block);
    if (known != acting_in.end())
        return known->second;
    std::vector<std::pair<const CallBase *, const Effect *>> found;
    for (const Instruction &instruction : block)
        if (const auto *call = dyn_cast<CallBase>(&instruction))
            if (const Effect &e = effect(*call); e.frees.any() || e.allocs.any())
                found.push_back({call, &e});
    return acting_in[&block] = std::move(found);
}

Set Effects::through(Set state, const BasicBlock &block, const Instruction *until) {
    for (auto &[call, e] : acting(block)) {
        if (until && (call == until || until->comesBefore(call)))
            break;
        state.reset(e->allocs);
        state |= e->frees;
    }
    return state;
}

/// Returns the objects that do not exist on this branch, because the field that holds them is null.
const Set &Effects::absent(const BasicBlock &from, const BasicBlock &to) {
    auto [known, is_new] = absent_on.try_emplace({&from, &to}, none);
    if (is_new)
        known->second = find_absent(from, to);
    return known->second;
}

Set Effects::find_absent(const BasicBlock &from, const BasicBlock &to) const {
    Set result = none;
    const auto *branch = dyn_cast<BranchInst>(from.getTerminator());
    if (!branch || !branch->isConditional())
        return result;
    const auto *compare = dyn_cast<ICmpInst>(branch->getCondition());
    if (!compare || !compare->isEquality() || !isa<ConstantPointerNull>(compare->getOperand(1)))
        return result;
    bool is_null_when_true = compare->getPredicate() == ICmpInst::ICMP_EQ;
    if (branch->getSuccessor(is_null_when_true ? 0 : 1) != &to || branch->getSuccessor(0) == branch->getSuccessor(1))
        return result;
    const Value *pointer = compare->getOperand(0);
    std::set<unsigned> found;
    for (const Target *target : calls.pointers.targets(pointer))
        if (target->kind == Target::block)
            if (auto known = objects.object_of.find(cast<CallBase>(target->value)); known != objects.object_of.end())
                found.insert(known->second);
    // Blocks that meet in a generic container form no pool; pools are distinguished by their field.
    for (auto it = found.begin(); found.size() > 1 && it != found.end();)
        it = objects.all[*it].is_pool ? std::next(it) : found.erase(it);
    if (found.size() != 1 || !is_single(*found.begin()) || !is_own(pointer))
        return result;
    // Null in this field means that there is no object only if no other field holds it.
    const auto *load = dyn_cast<LoadInst>(pointer);
    Cell cell;
    bool is_only_holder = load && cell_of(load->getPointerOperand(), calls.module, cell) &&
                          objects.all[*found.begin()].holders == std::vector<Cell>{cell};
    // Other objects keep a pool's address only while they are in the pool.
    bool is_pool = load && objects.all[*found.begin()].is_pool && objects.request_records.count(cell.record);
    if (is_only_holder || is_pool || (isa<CallBase>(pointer) && objects.object_of.count(cast<CallBase>(pointer))))
        result.set(*found.begin());
    return result;
}

/// Returns the objects freed on every path to the start of each block.
std::map<const BasicBlock *, Set> Effects::before(const SetVector<const BasicBlock *> &blocks,
                                                  const std::set<const BasicBlock *> &starts) {
    std::map<const BasicBlock *, Set> in;
    bool is_changed = true;
    while (is_changed) {
        is_changed = false;
        for (const BasicBlock *block : blocks) {
            std::optional<Set> state;
            if (starts.count(block))
                state = none;
            for (const BasicBlock *previous : predecessors(block)) {
                auto known = in.find(previous);
                if (known == in.end())
                    continue;
                Set out = unite(through(known->second, *previous, nullptr), absent(*previous, *block));
                state = state ? meet(*state, out) : out;
            }
            if (!state)
                continue;
            auto [old, is_new] = in.emplace(block, *state);
            if (is_new || old->second != *state) {
                // Iterates downwards: an object assumed freed may turn out not to be.
                if (!is_new)
                    *state &= old->second;
                if (is_new || old->second != *state)
                    old->second = *state, is_changed = true;
            }
        }
    }
    return in;
}

After Effects::back(After state, const BasicBlock &block, const Instruction *from) {
    auto &all = acting(block);
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
        auto &[call, e] = *it;
        if (from && (call == from || call->comesBefore(from)))
            break;
        state.dead |= without(e->frees, state.maybe_live);
        state.maybe_live |= without(without(e->allocs, state.dead), e->frees);
    }
    return state;
}

std::map<const BasicBlock *, After> Effects::after(const SetVector<const BasicBlock *> &blocks) {
    std::map<const BasicBlock *, After> out; // at the end of each block
    std::vector<const BasicBlock *> order(blocks.rbegin(), blocks.rend());
    bool is_changed = true;
    while (is_changed) {
        is_changed = false;
        for (const BasicBlock *block : order) {
            std::optional<After> state;
            if (succ_empty(block))
                state = isa<UnreachableInst>(block->getTerminator()) ? After{every, none} : After{none, none};
            for (const BasicBlock *next : successors(block)) {
                After there{none, none};
                if (blocks.count(next)) {
                    auto known = out.find(next);
                    if (known == out.end())
                        continue;
                    there = back(known->second, *next, nullptr);
                    there.dead |= without(absent(*block, *next), there.maybe_live);
                }
                if (!state)
                    state = there;
                else
                    state->dead &= there.dead, state->maybe_live |= there.maybe_live;
            }
            if (!state)
                continue;
            auto [old, is_new] = out.emplace(block, *state);
            if (is_new) {
                is_changed = true;
                continue;
            }
            After next{meet(state->dead, old->second.dead), unite(state->maybe_live, old->second.maybe_live)};
            if (next.dead != old->second.dead || next.maybe_live != old->second.maybe_live)
                old->second = next, is_changed = true;
        }
    }
    return out;
}

} // namespace stingy
