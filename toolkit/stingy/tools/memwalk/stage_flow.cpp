#include "memwalk/stage_finder.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

std::optional<unsigned> StageFinder::begun_by(const Function &function) const {
    auto found = begins.find(&function);
    return found == begins.end() ? std::nullopt : std::optional<unsigned>(found->second);
}

/// Adds the code of a dispatcher that runs when a stage calls it: its code for that state, and the code for every
/// state.
void StageFinder::add_chosen(Stage &stage, const Function &function) {
    std::map<const BasicBlock *, const StateTest *> test_at;
    for (const StateTest &test : tests)
        if (test.block->getParent() == &function)
            test_at[test.block] = &test;
    std::set<const BasicBlock *> seen;
    std::vector<const BasicBlock *> work{&function.getEntryBlock()};
    while (!work.empty()) {
        const BasicBlock *block = work.back();
        work.pop_back();
        if (!seen.insert(block).second)
            continue;
        stage.blocks.insert(block);
        auto test = test_at.find(block);
        if (test == test_at.end()) {
            work.insert(work.end(), succ_begin(block), succ_end(block));
            continue;
        }
        auto own = test->second->when.find(*stage.value);
        work.push_back(own == test->second->when.end() ? test->second->otherwise : own->second);
    }
    stage.starts.insert(&function.getEntryBlock());
}

void StageFinder::close(Stage &stage) {
    std::vector<const Function *> work;
    std::set<const Function *> chosen;
    auto visit = [&](const CallBase &call, const Function *callee) {
        if (callee->isDeclaration() || (callee != stage.function && begun_by(*callee)))
            return;
        // A stage that calls its dispatcher continues in another state.
        if (is_border(callee)) {
            bool is_helper = stage.value && has_state() && graph.dispatchers.count(callee) &&
                             callee != stage.dispatcher && callee != graph.scheduler &&
                             !schedule_functions.count(callee) && !outside.count(callee);
            if (is_helper && call.getFunction() != callee && chosen.insert(callee).second)
                add_chosen(stage, *callee);
            return;
        }
        if (stage.functions.insert(callee))
            work.push_back(callee);
    };
    if (stage.function && stage.functions.insert(stage.function))
        work.push_back(stage.function);
    auto scan = [&](const Instruction &instruction) {
        const auto *call = dyn_cast<CallBase>(&instruction);
        if (!call || dispatch_calls.count(call))
            return;
        for (const Function *callee : calls.pointers.callees(*call))
            visit(*call, callee);
    };
    size_t scanned = 0;
    while (scanned < stage.blocks.size() || !work.empty()) {
        if (scanned < stage.blocks.size()) {
            for (const Instruction &instruction : *stage.blocks[scanned++])
                scan(instruction);
            continue;
        }
        const Function *function = work.back();
        work.pop_back();
        for (const Instruction &instruction : instructions(*function))
            scan(instruction);
    }
}

void StageFinder::each_queueing(const Within &within, const Counts &counts,
                                const std::function<void(const Origin &)> &use) const {
    for (const StateCell &state : graph.states)
        if (auto stores = calls.stores.find(state.cell); stores != calls.stores.end())
            for (const StoreInst *store : stores->second)
                if (counts(*store))
                    for (const Origin &origin :
                         origins(calls, store->getValueOperand(), store, within, &state.cell).all)
                        use(origin);
    for (auto [call, value] : filling)
        if (counts(*call))
            use({nullptr, value, call});
    for (auto &[name, call] : config.queue_stage)
        for (const CallBase *caller : calls.callers(*function_named(name)))
            if (counts(*caller) && call.stage >= 0 && call.stage < int(caller->arg_size()))
                for (const Origin &origin : origins(calls, caller->getArgOperand(call.stage), caller, within,
                                                    has_state() ? &graph.states[0].cell : nullptr)
                                                .all)
                    use(origin);
    for (unsigned i = 0; i < lists.size(); i++)
        if (lists[i])
            for (const User *user : lists[i]->users())
                if (const auto *at = dyn_cast<Instruction>(user); at && counts(*at)) {
                    const auto *store = dyn_cast<StoreInst>(at);
                    bool is_put = (store && store->getPointerOperand() == lists[i] &&
                                   !isa<ConstantPointerNull>(store->getValueOperand())) ||
                                  isa<CallBase>(at);
                    if (!is_put || graph.stages[i].contains(*at))
                        continue;
                    Origin origin;
                    origin.at = at, origin.function = graph.stages[i].function;
                    use(origin);
                }
}

/// Finds calls that fill a whole request including its state, without a later assignment of the state: memset, and
/// copies of a constant or of a local variable that is zero (`*c = (struct conn){0}`).
void StageFinder::find_filling() {
    if (!has_state() || is_functions)
        return;
    const Cell &state = graph.states[0].cell;
    const DataLayout &layout = module.getDataLayout();
    auto is_record = [&](const Type *type) {
        const auto *record = dyn_cast_or_null<StructType>(type);
        return record && plain_name(*record) == state.record;
    };
    auto is_request = [&](const Value *pointer) {
        if (const auto *element = dyn_cast<GEPOperator>(pointer); element && is_record(element->getResultElementType()))
            return true;
        if (const auto *argument = dyn_cast<Argument>(pointer)) {
            auto types = program.facts.signatures.find(source_name(*argument->getParent()));
            unsigned i = argument->getArgNo() + 1; // the result comes before it
            if (types != program.facts.signatures.end())
                for (const Signature &type : types->second)
                    if (i < type.size() && type[i] == "*" + state.record)
                        return true;
        }
        return any_of(pointer->users(), [&](const User *user) {
            const auto *field = dyn_cast<GetElementPtrInst>(user);
            return field && is_record(field->getSourceElementType());
        });
    };
    // Returns the value that memset and similar functions store in a state, if they store zeros.
    auto zeroed = [&](const CallBase &call) -> const Value * {
        const Function *callee = call.getCalledFunction();
        bool is_bzero = callee && callee->getName() == "bzero";
        if (!is_bzero && !isa<MemSetInst>(call) && !(callee && callee->getName() == "memset"))
            return nullptr;
        const auto *bytes = dyn_cast<ConstantInt>(call.getArgOperand(is_bzero ? 1 : 2));
        const auto *filling = is_bzero ? nullptr : dyn_cast<ConstantInt>(call.getArgOperand(1));
        bool is_zero = bytes && bytes->getZExtValue() > state.offset && (is_bzero || (filling && filling->isZero()));
        return is_zero ? call.getArgOperand(0)->stripPointerCasts() : nullptr;
    };
    // Returns the value that a copy stores.
    auto copied = [&](const CallBase &call) -> std::optional<int64_t> {
        const Function *callee = call.getCalledFunction();
        if (!isa<MemTransferInst>(call) && !(callee && callee->getName() == "memcpy"))
            return std::nullopt;
        const auto *bytes = dyn_cast<ConstantInt>(call.getArgOperand(2));
        const Value *from = call.getArgOperand(1)->stripPointerCasts();
        if (!bytes || bytes->getZExtValue() <= state.offset)
            return std::nullopt;
        if (const auto *constant = dyn_cast<GlobalVariable>(from);
            constant && constant->isConstant() && constant->hasInitializer()) {
            const Field *field = program.facts.records.at(state.record).find(graph.states[0].field);
            Type *type = Type::getIntNTy(module.getContext(), field ? 8 * field->bytes : 32);
            if (const auto *number = dyn_cast_or_null<ConstantInt>(ConstantFoldLoadFromConst(
                    const_cast<Constant *>(constant->getInitializer()), type, APInt(64, state.offset), layout)))
                return number->getSExtValue();
        }
        for (const User *user : from->users())
            if (const auto *memset = dyn_cast<CallBase>(user);
                isa<AllocaInst>(from) && memset && zeroed(*memset) == from)
                return 0;
        return std::nullopt;
    };
    // Whether a copied value is defined elsewhere, or changes.
    auto is_unknown = [&](const CallBase &call) {
        const auto *bytes = isa<MemTransferInst>(call) ? dyn_cast<ConstantInt>(call.getArgOperand(2)) : nullptr;
        return bytes && bytes->getZExtValue() > state.offset &&
               isa<GlobalVariable>(call.getArgOperand(1)->stripPointerCasts()) &&
               is_request(call.getArgOperand(0)->stripPointerCasts());
    };
    for (const Function &function : module)
        for (const Instruction &instruction : instructions(function)) {
            const auto *call = dyn_cast<CallBase>(&instruction);
            if (!call)
                continue;
            if (!copied(*call) && is_unknown(*call))
                filling_unknown.push_back(call);
            const Value *request = zeroed(*call);
            std::optional<int64_t> value;
            if (request)
                value = 0;
            else if ((value = copied(*call)))
                request = call->getArgOperand(0)->stripPointerCasts();
            if (!value || isa<AllocaInst>(request) || !is_request(request))
                continue;
            auto stores = calls.stores.find(state);
            bool is_assigned = stores != calls.stores.end() && any_of(stores->second, [&](const StoreInst *store) {
                                   return store->getFunction() == &function &&
                                          (isPotentiallyReachable(call, store, nullptr, nullptr, nullptr) ||
                                           isa<AllocaInst>(getUnderlyingObject(store->getPointerOperand())));
                               });
            if (!is_assigned)
                filling.push_back({call, *value});
        }
}

/// Whether a value is computed from the state's bits.
bool StageFinder::is_made_of_bits(const Value *value, const StateCell &state) const {
    while (const auto *cast = dyn_cast<CastInst>(value))
        value = cast->getOperand(0);
    const auto *binary = dyn_cast<BinaryOperator>(value);
    if (!binary || (binary->getOpcode() != Instruction::Or && binary->getOpcode() != Instruction::And))
        return false;
    return any_of(binary->operand_values(), [&](const Value *one) {
        Cell cell;
        return (field_of(calls, one, cell) && cell == state.cell) || is_made_of_bits(one, state);
    });
}

/// Reports assignments of unknown values to the state in stages, because edges from there are missing.
void StageFinder::report_unknown() {
    for (const StateCell &state : graph.states) {
        const Instruction *unknown = nullptr, *bits = nullptr;
        unsigned unknowns = 0, of_bits = 0;
        for (const CallBase *call : filling_unknown)
            if (!graph.stages_of(*call).empty())
                unknown = unknown ? unknown : call, unknowns++;
        auto stores = calls.stores.find(state.cell);
        for (const StoreInst *store : stores == calls.stores.end() ? std::vector<StoreInst *>() : stores->second) {
            auto any = [](const CallBase &) { return true; };
            Origins found = origins(calls, store->getValueOperand(), store, any, &state.cell);
            if (found.is_complete || !found.all.empty() || graph.stages_of(*store).empty())
                continue;
            bool is_bits = is_made_of_bits(store->getValueOperand(), state);
            const Instruction *&first = is_bits ? bits : unknown;
            if (!first)
                first = store;
            (is_bits ? of_bits : unknowns)++;
        }
        auto more = [](unsigned count) {
            return count > 1 ? " and at " + std::to_string(count - 1) + " more places" : std::string();
        };
        if (unknown)
            graph.doubts.push_back({"state_unknown", unknown,
                                    state.text() + " is given a value here" + more(unknowns) +
                                        " that is not known; edges from there are missing",
                                    "assign constants, or [[stage]] with after = [...]"});
        if (bits)
            graph.doubts.push_back({"state_of_bits", bits,
                                    state.text() + " is a set of bits: one is set or taken away here" + more(of_bits) +
                                        "; stages are values that are assigned whole, edges by bits are missing",
                                    "name the stages: [[stage]] with entry and after"});
    }
}

std::optional<unsigned> StageFinder::stage_of(const Origin &origin) const {
    for (unsigned i = 0; i < graph.stages.size(); i++) {
        const Stage &stage = graph.stages[i];
        if (origin.function ? stage.function == origin.function && stage.kind != "entry"
                            : stage.value && *stage.value == origin.number)
            return i;
    }
    return std::nullopt;
}

void StageFinder::add_edges(unsigned from) {
    const Stage &stage = graph.stages[from];
    auto within = [&](const CallBase &call) { return stage.contains(call); };
    auto counts = [&](const Instruction &instruction) { return stage.contains(instruction); };
    each_queueing(within, counts, [&](const Origin &origin) {
        if (auto to = stage_of(origin))
            graph.edges.push_back({from, *to, origin.at, Edge::queued, {}, {}, {}});
    });
}

bool StageFinder::is_busy(const Stage &stage, const Instruction &instruction) {
    if (const auto *store = dyn_cast<StoreInst>(&instruction)) {
        Cell cell;
        if (!cell_of(store->getPointerOperand(), module, cell))
            return false;
        return any_of(graph.states, [&](const StateCell &state) { return state.cell == cell; });
    }
    const auto *call = dyn_cast<CallBase>(&instruction);
    if (!call)
        return false;
    if (dispatch_calls.count(call))
        return call->getFunction() == stage.function;
    for (const Function *callee : calls.pointers.callees(*call)) {
        if (config.malloc_like.count(callee->getName().str()) || config.free_like.count(callee->getName().str()) ||
            begun_by(*callee) || queue_functions.count(callee))
            return true;
        if (callee->isDeclaration() || !stage.functions.count(callee))
            continue;
        auto [known, is_new] = busy.emplace(callee, false); // a recursive call adds nothing
        if (is_new)
            for (const Instruction &inner : instructions(*callee))
                if (is_busy(stage, inner)) {
                    busy[callee] = true;
                    break;
                }
        if (busy[callee])
            return true;
    }
    return false;
}

bool StageFinder::goes_on_after(const Stage &stage, const CallBase &call) {
    std::set<const CallBase *> seen;
    std::vector<const CallBase *> work{&call};
    while (!work.empty()) {
        const CallBase *at = work.back();
        work.pop_back();
        if (!seen.insert(at).second)
            continue;
        for (const Instruction *next = at->getNextNode(); next; next = next->getNextNode())
            if (is_busy(stage, *next))
                return true;
        std::set<const BasicBlock *> blocks;
        std::vector<const BasicBlock *> later(succ_begin(at->getParent()), succ_end(at->getParent()));
        while (!later.empty()) {
            const BasicBlock *block = later.back();
            later.pop_back();
            if (!blocks.insert(block).second)
                continue;
            for (const Instruction &instruction : *block)
                if (is_busy(stage, instruction))
                    return true;
            later.insert(later.end(), succ_begin(block), succ_end(block));
        }
        if (at->getFunction() != stage.function)
            for (const CallBase *caller : calls.callers(*at->getFunction()))
                if (stage.contains(*caller))
                    work.push_back(caller);
    }
    return false;
}

/// Adds the stages that a stage runs directly: by name, or through a state field in the function in which it begins.
/// Calls through the field further down run stages of other requests; an entry that makes such calls is the loop.
void StageFinder::add_call_edges(unsigned from) {
    busy.clear();
    const Stage &stage = graph.stages[from];
    auto consider = [&](const Instruction &instruction) {
        const auto *call = dyn_cast<CallBase>(&instruction);
        if (!call || (dispatch_calls.count(call) && (call->getFunction() != stage.function || stage.kind == "entry")))
            return;
        std::set<unsigned> next;
        for (const Function *callee : calls.pointers.callees(*call))
            if (auto to = begun_by(*callee); to && *to != from)
                next.insert(*to);
        if (next.empty())
            return;
        bool is_back = goes_on_after(stage, *call);
        for (unsigned to : next) {
            graph.edges.push_back({from, to, call, Edge::called, {}, {}, {}});
            if (is_back)
                graph.edges.push_back({to, from, call, Edge::returned, {}, {}, {}});
        }
    };
    for (const Function *function : stage.functions)
        for (const Instruction &instruction : instructions(*function))
            consider(instruction);
    for (const BasicBlock *block : stage.blocks)
        for (const Instruction &instruction : *block)
            consider(instruction);
}

/// Returns the outermost callers, below the event loop, of functions that belong to no stage.
std::set<const Function *> StageFinder::outermost(const std::vector<const Function *> &from) const {
    std::set<const Function *> tops, seen;
    std::vector<const Function *> work = from;
    while (!work.empty()) {
        const Function *function = work.back();
        work.pop_back();
        if (!seen.insert(function).second || is_border(function) || queue_functions.count(function))
            continue;
        bool is_top = calls.pointers.called_later().count(const_cast<Function *>(function));
        bool has_callers = false;
        for (const CallBase *call : calls.callers(*function)) {
            const Function *caller = call->getFunction();
            if (!graph.stages_of(*call).empty())
                continue;
            has_callers = true;
            if (outside.count(caller))
                continue;
            if (is_border(caller) || caller->getName() == "main" || dispatch_calls.count(call))
                is_top = true;
            else if (!is_top)
                work.push_back(caller);
        }
        if (!has_callers && graph.stages_of(function->getEntryBlock().front()).empty())
            is_top = true;
        if (is_top && function->getName() != "main")
            tops.insert(function);
    }
    return tops;
}

/// Adds entry stages for code that queues requests and belongs to no stage: accept and timers. The stage is its
/// outermost function below the event loop.
void StageFinder::add_entries() {
    auto is_outside = [&](const Instruction &at) {
        return graph.stages_of(at).empty() && !outside.count(at.getFunction());
    };
    std::vector<const Function *> work;
    auto any = [&](const CallBase &) { return true; };
    auto everything = [](const Instruction &) { return true; };
    MapVector<const Function *, SetVector<const Instruction *>> in_dispatcher;
    each_queueing(any, everything, [&](const Origin &origin) {
        if (!stage_of(origin) || !is_outside(*origin.at))
            return;
        const Function *function = origin.at->getFunction();
        work.push_back(function);
        if (is_border(function))
            in_dispatcher[function].insert(origin.at);
    });
    std::set<const Function *> tops = outermost(work);
    // The loop that runs the stages may also accept; then its code, without that of the stages, is an entry.
    for (auto &[function, places] : in_dispatcher) {
        if (queue_functions.count(function))
            continue;
        std::set<std::string> callers;
        for (const CallBase *call : calls.callers(*function))
            for (unsigned i : graph.stages_of(*call))
                callers.insert(graph.stages[i].name);
        if (!callers.empty())
            graph.doubts.push_back(
                {"state_changed_in_loop", places[0],
                 join(callers, ", ") + " call " + source_name(*function) +
                     ", which changes the state here, outside of any state's own code; that is taken "
                     "as the loop's, and edges from these stages may be missing",
                 "[scheduler] dispatch = \"the function of the loop\""});
        Stage stage;
        stage.name = source_name(*function);
        stage.kind = "entry";
        stage.dispatcher = function;
        stage.place = place_of(*places[0]);
        DominatorTree dominators(*const_cast<Function *>(function));
        LoopInfo loops(dominators);
        for (const Instruction *place : places) {
            const Loop *loop = loops.getLoopFor(place->getParent());
            while (loop && loop->getParentLoop())
                loop = loop->getParentLoop();
            for (const BasicBlock &block : *function)
                if ((!loop || loop->contains(&block)) && graph.stages_of(block.front()).empty())
                    stage.blocks.insert(&block);
        }
        for (const BasicBlock *block : stage.blocks)
            stage.starts.insert(block);
        if (any_of(graph.stages, [&](const Stage &s) { return s.name == stage.name; }))
            stage.name += " (loop)";
        graph.stages.push_back(stage);
        close(graph.stages.back());
    }
    std::vector<const Function *> sorted(tops.begin(), tops.end());
    auto order = [](const Function *f) {
        Place p = place_of(*f);
        return std::make_tuple(p.file, p.line, f->getName().str());
    };
    std::sort(sorted.begin(), sorted.end(), [&](const Function *a, const Function *b) { return order(a) < order(b); });
    for (const Function *function : sorted) {
        Stage stage;
        stage.name = source_name(*function);
        stage.kind = "entry";
        stage.function = function;
        stage.place = place_of(*function);
        bool is_named = any_of(graph.stages, [&](const Stage &s) { return s.name == stage.name; });
        if (is_named)
            continue;
        graph.stages.push_back(stage);
        close(graph.stages.back());
    }
    lists.resize(graph.stages.size());
}

} // namespace stingy
