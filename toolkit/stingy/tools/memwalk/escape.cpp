#include "memwalk/escape.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

// A block passed on more often than this is not treated as a temporary.
static constexpr unsigned most_steps = 4000;

Escapes::Escapes(const Calls &calls, const Allocators &allocators, const StageGraph &graph,
                 std::function<bool(const Value &)> is_request)
    : calls(calls), allocators(allocators), graph(graph), is_request(std::move(is_request)) {
    std::vector<const Function *> work(graph.dispatchers.begin(), graph.dispatchers.end());
    if (graph.scheduler)
        work.push_back(graph.scheduler);
    for (const Stage &stage : graph.stages)
        if (stage.function)
            work.push_back(stage.function);
    while (!work.empty()) {
        const Function *function = work.back();
        work.pop_back();
        for (const CallBase *call : calls.callers(*function))
            if (running.insert(call->getFunction()).second)
                work.push_back(call->getFunction());
    }
}

/// The variable or parameter that contains an address.
static const Value *base_of(const Value *address) {
    while (true)
        if (const auto *gep = dyn_cast<GEPOperator>(address))
            address = gep->getPointerOperand();
        else if (const auto *cast = dyn_cast<CastInst>(address))
            address = cast->getOperand(0);
        else
            return address;
}

void Escapes::store_to(Walk &walk, const Value *address) {
    const Value *base = base_of(address);
    if ((isa<AllocaInst>(base) || isa<CallBase>(base)) && is_request(*base))
        walk.course.is_kept = true;
    else if (isa<AllocaInst>(base))
        walk.work.push_back({base, local});
    else if (const auto *parameter = dyn_cast<Argument>(base))
        walk.course.into.insert(parameter->getArgNo());
    else if (const auto *phi = dyn_cast<PHINode>(base)) {
        if (!walk.holders.insert(phi).second)
            return;
        walk.work.push_back({phi, local});
        for (const Value *one : phi->incoming_values())
            if (!isa<ConstantPointerNull>(one))
                store_to(walk, one);
    } else if (const auto *call = dyn_cast<CallBase>(base);
               call && allocators.malloc_of(*call) && allocators.malloc_of(*call)->through < 0)
        walk.work.push_back({call, local}); // stored in a block that must be a temporary, too
    else
        walk.course.is_kept = true;
}

/// Whether a function passes its variable arguments only to functions that print them.
bool Escapes::only_prints(const Function &function) {
    auto [known, is_new] = printing.emplace(&function, true);
    if (!is_new)
        return known->second;
    bool is_good = true;
    SmallPtrSet<const Value *, 2> lists;
    for (const Instruction &instruction : instructions(function))
        if (const auto *call = dyn_cast<IntrinsicInst>(&instruction);
            call && (call->getIntrinsicID() == Intrinsic::vastart || call->getIntrinsicID() == Intrinsic::vacopy))
            lists.insert(base_of(call->getArgOperand(0)));
    for (const Instruction &instruction : instructions(function)) {
        if (const auto *load = dyn_cast<LoadInst>(&instruction))
            is_good &= !lists.count(base_of(load->getPointerOperand()));
        const auto *call = dyn_cast<CallBase>(&instruction);
        if (!call || isa<IntrinsicInst>(call))
            continue;
        for (const Value *argument : call->args())
            if (argument->getType()->isPointerTy() && lists.count(base_of(argument)))
                for (const Function *callee : calls.pointers.callees(*call))
                    is_good &= callee->isDeclaration() ? keeps_nothing(callee->getName())
                                                       : callee->getName().starts_with("v") || only_prints(*callee);
    }
    return printing[&function] = is_good;
}

const Course &Escapes::of_parameter(const Argument &parameter, Kind kind) {
    auto [known, is_new] = of_parameters.emplace(Key{&parameter, kind}, Course{}); // a recursive call adds nothing
    if (is_new) {
        Walk walk;
        walk.work.push_back({&parameter, kind});
        follow(walk);
        of_parameters[{&parameter, kind}] = walk.course;
    }
    return of_parameters[{&parameter, kind}];
}

void Escapes::pass(Walk &walk, const CallBase &call, unsigned argument, Kind kind) {
    if (const auto *intrinsic = dyn_cast<IntrinsicInst>(&call)) {
        // Copies of the block do not hold its address; copies of a variable that holds it do.
        if (isa<MemTransferInst>(intrinsic) && argument == 1 && kind == local)
            store_to(walk, intrinsic->getArgOperand(0));
        return;
    }
    const auto &callees = calls.pointers.callees(call);
    walk.course.is_kept |= callees.empty() || call.isInlineAsm();
    for (const Function *callee : callees) {
        if (const Allocator *how = allocators.free_of(*callee)) {
            walk.course.is_freed |= kind == block && how->pointer == int(argument);
            continue;
        }
        if (const Allocator *how = allocators.malloc_of(*callee)) {
            if (how->pointer == int(argument) && kind == block)
                walk.work.push_back({&call, block});
            if (how->through != int(argument) || kind != local)
                walk.course.is_kept |= how->pool == int(argument);
            continue;
        }
        if (callee->isDeclaration()) {
            // A copy of a variable has the same contents.
            StringRef name = callee->getName();
            bool is_copy = is_contained(ArrayRef<StringRef>{"memcpy", "memmove", "mempcpy", "memccpy"}, name);
            if (kind == local && is_copy && argument == 1)
                store_to(walk, call.getArgOperand(0));
            if (kind == local && name == "bcopy" && argument == 0)
                store_to(walk, call.getArgOperand(1));
            if (returned_argument(callee->getName()) == int(argument))
                walk.work.push_back({&call, kind});
            walk.course.is_kept |= !keeps_nothing(callee->getName());
            continue;
        }
        if (argument >= callee->arg_size()) {
            walk.course.is_kept |= kind == local || !only_prints(*callee);
            continue;
        }
        const Course &inner = of_parameter(*callee->getArg(argument), kind);
        walk.course.is_kept |= inner.is_kept;
        walk.course.is_freed |= inner.is_freed;
        if (inner.is_returned)
            walk.work.push_back({&call, kind});
        for (unsigned i : inner.into)
            if (i < call.arg_size())
                store_to(walk, call.getArgOperand(i));
    }
}

void Escapes::use(Walk &walk, const Key &key, const Use &use) {
    auto [value, kind] = key;
    const auto *user = dyn_cast<Instruction>(use.getUser());
    if (!user) {
        walk.course.is_kept = true;
        return;
    }
    walk.uses.push_back(user);
    if (isa<GetElementPtrInst>(user) || isa<PHINode>(user) || isa<SelectInst>(user) || isa<FreezeInst>(user) ||
        isa<BitCastInst>(user))
        walk.work.push_back({user, kind});
    else if (const auto *load = dyn_cast<LoadInst>(user)) {
        if (kind == local && (load->getType()->isPointerTy() || load->getType()->isIntegerTy(64)))
            walk.work.push_back({load, block});
    } else if (const auto *store = dyn_cast<StoreInst>(user)) {
        if (store->getValueOperand() != value)
            return;
        if (kind == local)
            walk.course.is_kept = true;
        else
            store_to(walk, store->getPointerOperand());
    } else if (const auto *number = dyn_cast<PtrToIntInst>(user)) {
        // Used for lengths and comparisons only.
        for (const User *of : number->users()) {
            const auto *binary = dyn_cast<BinaryOperator>(of);
            walk.course.is_kept |= !isa<ICmpInst>(of) && !(binary && binary->getOpcode() == Instruction::Sub);
        }
    } else if (isa<ReturnInst>(user)) {
        walk.course.is_returned |= kind == block;
        walk.course.is_kept |= kind == local;
    } else if (const auto *call = dyn_cast<CallBase>(user)) {
        if (call->isArgOperand(&use))
            pass(walk, *call, call->getArgOperandNo(&use), kind);
    } else if (!isa<ICmpInst>(user) && !(isa<BinaryOperator>(user) && value->getType()->isIntegerTy()))
        walk.course.is_kept = true;
}

void Escapes::follow(Walk &walk) {
    while (!walk.work.empty() && !walk.course.is_kept) {
        Key key = walk.work.back();
        walk.work.pop_back();
        if (!walk.seen.insert(key).second)
            continue;
        for (const Use &one : key.first->uses()) {
            walk.course.is_kept |= ++walk.steps > most_steps;
            use(walk, key, one);
        }
    }
}

/// A block that lives while the program's loop continues belongs to no stage.
bool Escapes::may_run_stages(const Instruction &use, const std::vector<unsigned> &stages) const {
    const Function *function = use.getFunction();
    if (graph.dispatchers.count(function) || function == graph.scheduler)
        return graph.stages_of(use) != stages || stages.empty();
    return running.count(function) && graph.stages_of(use).empty();
}

bool Escapes::is_temporary(const CallBase &made) {
    const Allocator *how = allocators.malloc_of(made);
    if (!how || how->pool >= 0 || how->is_pool)
        return false;
    std::vector<std::pair<const CallBase *, bool>> frames{{&made, how->through >= 0}};
    std::set<const CallBase *> seen;
    bool is_freed = false;
    for (size_t i = 0; i < frames.size(); i++) {
        auto [call, is_stored] = frames[i];
        if (!seen.insert(call).second)
            continue;
        Walk walk;
        if (!is_stored)
            walk.work.push_back({call, block});
        else if (i == 0 && unsigned(how->through) < call->arg_size())
            store_to(walk, call->getArgOperand(how->through));
        follow(walk);
        std::vector<unsigned> stages = graph.stages_of(*call);
        if (walk.course.is_kept ||
            any_of(walk.uses, [&](const Instruction *use) { return may_run_stages(*use, stages); }))
            return false;
        is_freed |= walk.course.is_freed;
        if (!walk.course.is_returned && walk.course.into.empty())
            continue;
        const auto &callers = calls.callers(*call->getFunction());
        if (callers.empty())
            return false;
        for (const CallBase *caller : callers) {
            if (walk.course.is_returned)
                frames.push_back({caller, false});
            for (unsigned argument : walk.course.into) {
                if (argument >= caller->arg_size())
                    return false;
                Walk outer;
                store_to(outer, caller->getArgOperand(argument));
                follow(outer);
                // The block may also be stored for an outer caller.
                if (outer.course.is_kept || outer.course.is_returned || !outer.course.into.empty() ||
                    any_of(outer.uses,
                           [&](const Instruction *use) { return may_run_stages(*use, graph.stages_of(*caller)); }))
                    return false;
                is_freed |= outer.course.is_freed;
            }
        }
        if (frames.size() > 200)
            return false;
    }
    return is_freed;
}

} // namespace stingy
