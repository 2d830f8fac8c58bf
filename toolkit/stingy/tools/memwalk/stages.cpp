#include "memwalk/stage_finder.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

bool Stage::contains(const Instruction &instruction) const {
    return blocks.count(instruction.getParent()) || functions.count(instruction.getFunction());
}

std::vector<unsigned> StageGraph::stages_of(const Instruction &instruction) const {
    std::vector<unsigned> all;
    for (unsigned i = 0; i < stages.size(); i++)
        if (stages[i].contains(instruction))
            all.push_back(i);
    return all;
}

std::string field_name(const Facts &facts, const Cell &cell) {
    auto record = facts.records.find(cell.record);
    if (record == facts.records.end())
        return "";
    for (const Field &field : record->second.fields)
        if (field.offset == cell.offset)
            return field.name;
    // Searches an array or structure that is a member.
    for (const Field &field : record->second.fields)
        if (field.offset <= cell.offset && cell.offset < field.offset + field.bytes)
            return field.name;
    return "";
}

bool StageFinder::run() {
    if (!find_scheduler() || !find_outside() || !find_state())
        return false;
    for (auto &[name, call] : config.schedule_stage)
        schedule_functions.insert(function_named(name));
    for (auto &[name, call] : config.queue_stage)
        queue_functions.insert(function_named(name));
    if (!add_configured())
        return false;
    if ((has_state() && is_functions) || stages_are_functions_of_queue())
        add_function_stages();
    else if (has_state())
        add_value_stages();
    add_schedule_argument_stages();
    if (graph.stages.empty()) {
        error = "no stages found: no structure has a field whose value a switch or ifs choose code by and that is "
                "assigned constants, and no field of functions that "
                "is assigned several. Say which: [scheduler] state = \"structure.field\" in stingy.toml, "
                "[[queue_stage]] with the function that queues, or a [[stage]] for "
                "each function that begins one (toolkit/stingy/README.md)";
        return false;
    }
    for (const Function *function : queue_functions)
        graph.dispatchers.erase(function);
    for (unsigned i = 0; i < graph.stages.size(); i++)
        if (graph.stages[i].kind == "function")
            begins[graph.stages[i].function] = i;
    for (Stage &stage : graph.stages)
        close(stage);
    find_filling();
    add_entries();
    for (unsigned i = 0; i < graph.stages.size(); i++)
        add_edges(i), add_call_edges(i);
    for (const NamedStage &named : config.stages)
        for (const std::string &before : named.after)
            if (!add_told_edge(named, before))
                return false;
    join_edges();
    report_unknown();
    graph.outside = outside;
    for (auto &[call, cell] : dispatch_calls)
        if (!begun_by(*call->getFunction()))
            graph.of_others.insert(call);
    return true;
}

Function *StageFinder::function_named(const std::string &name) const {
    if (Function *function = module.getFunction(name); function)
        return function;
    for (Function &function : module)
        if (!function.isDeclaration() && source_name(function) == name)
            return &function;
    return nullptr;
}

bool StageFinder::find_scheduler() {
    if (config.scheduler.empty())
        return true;
    graph.scheduler = function_named(config.scheduler);
    if (graph.scheduler && !graph.scheduler->isDeclaration())
        return true;
    error = config.scheduler_place.text() + ": the program has no function `" + config.scheduler +
            "`; name the function of the event loop";
    return false;
}

bool StageFinder::find_told_states() {
    for (const StateName &told : config.states) {
        std::string record = program.facts.record_named(told.type);
        const Field *field = record.empty() ? nullptr : program.facts.records.at(record).find(told.field);
        if (!field) {
            error = config.state_place.text() + ": " +
                    (record.empty() ? "the program has no structure `" + told.type + "`"
                                    : "the structure " + told.type + " has no field `" + told.field + "`") +
                    "; write state = \"structure.field\"";
            return false;
        }
        graph.states.push_back({{record, field->offset}, told.type, told.field});
        is_functions = field->is_function || field->is_pointer;
        if (is_functions || config.states.size() == 1)
            continue;
        error = config.state_place.text() + ": " + told.type + "." + told.field +
                " holds no function; several fields can only be named where each holds the function that goes on with "
                "a request";
        return false;
    }
    return true;
}

bool StageFinder::find_outside() {
    for (const std::string &name : config.outside) {
        size_t before = outside.size();
        StringRef start = name;
        if (start.consume_back("*")) {
            for (const Function &function : module)
                if (!function.isDeclaration() && StringRef(source_name(function)).starts_with(start))
                    outside.insert(&function);
        } else if (const Function *function = function_named(name))
            outside.insert(function);
        if (outside.size() > before || is_contained(outside, function_named(name)))
            continue;
        error = config.outside_place.text() + ": outside: the program has no function `" + name +
                "`; correct the name, or leave it out";
        return false;
    }
    return true;
}

bool StageFinder::find_state() {
    for (auto &[name, handed] : config.handed_on)
        if (!function_named(name)) {
            error = handed.place.text() + ": the program has no function `" + name + "`; correct the name";
            return false;
        }
    for (auto *table : {&config.queue_stage, &config.schedule_stage})
        for (auto &[name, call] : *table) {
            const Function *function = function_named(name);
            if (!function) {
                error = call.place.text() + ": the program has no function `" + name + "`; correct the name";
                return false;
            }
            if (call.stage >= int(function->arg_size())) {
                error = call.place.text() + ": " + name + " has " + std::to_string(function->arg_size()) +
                        " arguments; `stage` counts from 0";
                return false;
            }
        }
    if (!config.states.empty())
        return find_told_states();
    if (!config.queue_stage.empty() || !config.stages.empty())
        return true;
    StateField guess;
    if (!guess_state_field(program, calls, guess))
        return true;
    graph.states.push_back({guess.cell, guess.cell.record, field_name(program.facts, guess.cell)});
    is_functions = guess.is_function;
    for (const std::string &other : guess.others)
        graph.doubts.push_back({"state_guessed", nullptr,
                                graph.states[0].text() + " was taken as the field that holds a request's stage; " +
                                    other + " looks like one, too",
                                "[scheduler] state = \"structure.field\""});
    return true;
}

bool StageFinder::stages_are_functions_of_queue() const {
    for (auto &[name, call] : config.queue_stage)
        if (const Function *function = function_named(name);
            function && call.stage >= 0 && function->getArg(call.stage)->getType()->isPointerTy())
            return true;
    return false;
}

bool StageFinder::add_configured() {
    for (const NamedStage &named : config.stages) {
        Function *entry = function_named(named.entry);
        if (!entry || entry->isDeclaration()) {
            error = named.place.text() + ": the program has no function `" + named.entry +
                    "` with a body; name the function in which the stage " + named.name + " begins";
            return false;
        }
        if (!named.list.empty() && !module.getGlobalVariable(named.list, true)) {
            error = named.place.text() + ": the program has no global `" + named.list + "`";
            return false;
        }
        Stage stage;
        stage.name = named.name;
        stage.kind = named.list.empty() ? (named.place.file == config.file ? "config" : "annotation") : "list";
        stage.function = entry;
        stage.place = place_of(*entry);
        lists.push_back(named.list.empty() ? nullptr : module.getGlobalVariable(named.list, true));
        graph.stages.push_back(stage);
    }
    lists.resize(graph.stages.size());
    return true;
}

bool StageFinder::add_told_edge(const NamedStage &named, const std::string &before) {
    std::optional<unsigned> from, to;
    for (unsigned i = 0; i < graph.stages.size(); i++) {
        if (graph.stages[i].name == before)
            from = i;
        if (graph.stages[i].name == named.name)
            to = i;
    }
    if (!from) {
        error = named.place.text() + ": after = \"" + before +
                "\": there is no stage of that name; memwalk --report lists them";
        return false;
    }
    graph.edges.push_back({*from, *to, nullptr, Edge::queued, {}, {}, {}});
    return true;
}

/// Makes one edge for each pair of stages, with all places that queue.
void StageFinder::join_edges() {
    std::sort(graph.edges.begin(), graph.edges.end(), [&](const Edge &a, const Edge &b) {
        auto key = [&](const Edge &e) {
            Place p = e.at ? place_of(*e.at) : Place{};
            return std::make_tuple(e.from, e.to, e.kind, p.file, p.line);
        };
        return key(a) < key(b);
    });
    std::vector<Edge> joined;
    for (Edge &edge : graph.edges) {
        if (joined.empty() || joined.back().from != edge.from || joined.back().to != edge.to)
            joined.push_back(edge);
        if (!edge.at)
            continue;
        auto &places = edge.kind == Edge::returned ? joined.back().returns
                       : edge.kind == Edge::called ? joined.back().calls
                                                   : joined.back().places;
        if (!is_contained(places, edge.at))
            places.push_back(edge.at);
    }
    graph.edges = std::move(joined);
}

bool find_stages(const Program &program, const Config &config, const Calls &calls, StageGraph &graph,
                 std::string &error) {
    return StageFinder(program, config, calls, graph, error).run();
}

} // namespace stingy
