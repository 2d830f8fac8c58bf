#include "memwalk/stage_finder.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

static bool everywhere(const CallBase &) {
    return true;
}

void StageFinder::add_function_stage(const Function *function) {
    if (function->isDeclaration())
        return;
    for (const Stage &stage : graph.stages)
        if (stage.function == function)
            return;
    Stage stage;
    stage.name = source_name(*function);
    stage.kind = "function";
    stage.function = function;
    stage.place = place_of(*function);
    graph.stages.push_back(stage);
}

void StageFinder::add_function_stages() {
    std::set<std::pair<std::string, const Function *>> found;
    Signature type;
    auto take = [&](const Value *value, const Instruction *at, const Cell *unchanged) {
        for (const Origin &origin : origins(calls, value, at, everywhere, unchanged).all)
            if (origin.function && program.facts.can_be_called_as(source_name(*origin.function), type))
                found.insert({origin.function->getName().str(), origin.function});
    };
    // Uses the values assigned by name; if there are none, all possible values.
    if (is_functions)
        for (const StateCell &state : graph.states) {
            size_t before = found.size();
            const Field *field = program.facts.records.at(state.cell.record).find(state.field);
            type = field ? field->signature : Signature();
            if (auto stores = calls.stores.find(state.cell); stores != calls.stores.end())
                for (const StoreInst *store : stores->second)
                    take(store->getValueOperand(), store, &state.cell);
            if (found.size() == before)
                for (const Target *target : calls.pointers.contents(state.cell))
                    if (target->kind == Target::function &&
                        program.facts.can_be_called_as(source_name(*cast<Function>(target->value)), type))
                        found.insert({target->value->getName().str(), cast<Function>(target->value)});
        }
    type.clear();
    for (auto &[name, call] : config.queue_stage) {
        const Function *queue = function_named(name);
        for (const CallBase *caller : calls.callers(*queue))
            if (call.stage < int(caller->arg_size()))
                take(caller->getArgOperand(call.stage), caller, nullptr);
    }
    // Sorts in the order of the source, which is usually the order in which a request passes the stages.
    std::vector<const Function *> sorted;
    for (auto &[name, function] : found)
        if (!outside.count(function))
            sorted.push_back(function);
    auto order = [](const Function *f) {
        Place p = place_of(*f);
        return std::make_tuple(p.file, p.line, f->getName().str());
    };
    std::sort(sorted.begin(), sorted.end(), [&](const Function *a, const Function *b) { return order(a) < order(b); });
    for (const Function *function : sorted)
        add_function_stage(function);
    // A function that calls through the field runs stages; a stage's code does not continue there.
    if (is_functions)
        for (CallBase *call : calls.pointers.indirect_calls()) {
            Cell cell;
            if (!field_of(calls, call->getCalledOperand(), cell))
                continue;
            for (const StateCell &state : graph.states)
                if (cell == state.cell)
                    dispatch_calls.emplace(call, &state.cell);
        }
    for (const Function *function : schedule_functions)
        graph.dispatchers.insert(function);
}

void StageFinder::add_value_stages() {
    const Function *only = nullptr;
    if (!config.dispatch.empty())
        only = function_named(config.dispatch);
    std::vector<StateTest> tests = state_tests(calls, graph.states[0].cell, only);
    add_stages_of_tests(tests, stored_values());
}

void StageFinder::add_schedule_argument_stages() {
    for (auto &[name, call] : config.schedule_stage) {
        const Function *schedule = function_named(name);
        if (call.stage < 0 || schedule->isDeclaration() || !schedule->getArg(call.stage)->getType()->isIntegerTy())
            continue;
        if (has_state() && !is_functions) {
            graph.dispatchers.insert(schedule);
            continue;
        }
        add_stages_of_tests(argument_tests(*schedule, call.stage), stored_values());
    }
}

std::set<int64_t> StageFinder::stored_values() const {
    std::set<int64_t> values;
    auto take = [&](const Value *value, const Instruction *at) {
        for (const Origin &origin : origins(calls, value, at, everywhere).all)
            if (!origin.function)
                values.insert(origin.number);
    };
    if (auto stores = has_state() ? calls.stores.find(graph.states[0].cell) : calls.stores.end();
        stores != calls.stores.end())
        for (const StoreInst *store : stores->second)
            take(store->getValueOperand(), store);
    for (auto &[name, call] : config.queue_stage)
        for (const CallBase *caller : calls.callers(*function_named(name)))
            if (call.stage < int(caller->arg_size()))
                take(caller->getArgOperand(call.stage), caller);
    return values;
}

void StageFinder::add_stages_of_tests(const std::vector<StateTest> &found, std::set<int64_t> values) {
    tests = found;
    std::map<const Function *, std::set<int64_t>> chosen; // values chosen by each function
    for (const StateTest &test : tests)
        for (auto &[value, block] : test.when)
            values.insert(value), chosen[test.block->getParent()].insert(value);
    // A test inside the code of one value: its other branch belongs to that code, not to every other value.
    SetVector<const BasicBlock *> guarded;
    std::set<const BasicBlock *> ignored;
    for (const StateTest &test : tests)
        for (auto &[value, block] : test.when)
            add_region(tests, test, value, guarded, ignored);
    for (int64_t value : values) {
        Stage stage;
        stage.value = value;
        name(stage, value);
        if (any_of(graph.stages, [&](const Stage &s) { return s.name == stage.name; }))
            stage.name = numbered(value);
        for (const StateTest &test : tests) {
            if (test.is_dispatch)
                graph.dispatchers.insert(test.block->getParent());
            if (!test.when.count(value) && guarded.count(test.block))
                continue;
            size_t before = stage.blocks.size();
            add_region(tests, test, value, stage.blocks, stage.starts);
            // The stage begins where most stages begin; other functions test the state on the way.
            if (stage.blocks.size() > before && test.when.count(value) &&
                (!stage.dispatcher || chosen[stage.dispatcher].size() < chosen[test.block->getParent()].size())) {
                stage.dispatcher = test.block->getParent();
                stage.place = place_of(*test.when.at(value)->getFirstNonPHIOrDbg());
                if (!stage.place.line)
                    stage.place = place_of(*test.block->getTerminator());
            }
        }
        if (stage.place.line == 0 && !tests.empty())
            stage.place = place_of(*tests.front().block->getTerminator());
        graph.stages.push_back(stage);
    }
    lists.resize(graph.stages.size());
}

std::string StageFinder::numbered(int64_t value) const {
    return (has_state() ? graph.states[0].field : std::string("stage")) + " " + std::to_string(value);
}

void StageFinder::name(Stage &stage, int64_t value) const {
    const auto &facts = program.facts;
    stage.kind = "number";
    stage.name = numbered(value);
    auto names = has_state() ? facts.values.find(graph.states[0].text()) : facts.values.end();
    if (names != facts.values.end())
        if (auto found = names->second.find(value); found != names->second.end()) {
            stage.name = found->second.first;
            stage.kind = found->second.second ? "enum" : "macro";
            return;
        }
    for (auto *table : {&config.queue_stage, &config.schedule_stage})
        for (auto &[function, call] : *table) {
            auto passed = facts.passed.find(function + ":" + std::to_string(call.stage));
            if (passed == facts.passed.end())
                continue;
            if (auto found = passed->second.find(value); found != passed->second.end()) {
                stage.name = found->second;
                stage.kind = "macro";
                return;
            }
        }
    // The parameter of a setter: `set_state(c, READING)`.
    if (auto stores = has_state() ? calls.stores.find(graph.states[0].cell) : calls.stores.end();
        stores != calls.stores.end())
        for (const StoreInst *store : stores->second)
            if (const auto *argument = dyn_cast<Argument>(store->getValueOperand())) {
                auto passed =
                    facts.passed.find(source_name(*argument->getParent()) + ":" + std::to_string(argument->getArgNo()));
                if (passed == facts.passed.end())
                    continue;
                if (auto found = passed->second.find(value); found != passed->second.end()) {
                    stage.name = found->second;
                    stage.kind = "macro";
                    return;
                }
            }
}

} // namespace stingy
