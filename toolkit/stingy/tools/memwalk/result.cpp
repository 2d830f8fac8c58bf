#include "memwalk/result.h"
#include "input/paths.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

std::string class_name(const Size &size) {
    switch (size.kind) {
    case Size::constant:
        return "const";
    case Size::n_constant:
        return "n_const";
    case Size::bounded:
        return "bounded";
    case Size::variable:
        break;
    }
    return "variable";
}

std::string event_text(const Edge &edge) {
    if (!edge.at)
        return "told by the configuration";
    Place place = place_of(*edge.at);
    static std::map<std::string, std::unique_ptr<MemoryBuffer>> files;
    auto [file, is_new] = files.try_emplace(place.file);
    if (is_new)
        if (auto buffer = MemoryBuffer::getFile(place.file))
            file->second = std::move(*buffer);
    if (!file->second)
        return "";
    StringRef rest = file->second->getBuffer();
    for (unsigned line = 1; line < place.line && !rest.empty(); line++)
        rest = rest.split('\n').second;
    StringRef text = rest.split('\n').first.trim();
    // If a line has several statements, takes the one that begins at the instruction.
    if (text.size() > 100)
        text = text.take_front(100);
    return text.rtrim(";").str();
}

/// Adds doubts about stages from which no request ends, if others have an end, and about stages without edges in
/// either direction: a normal end may be missing from the graph.
static void doubt_ends(Result &result) {
    const auto &stages = result.graph->stages;
    std::vector<bool> ends(stages.size(), true), is_alone(stages.size(), true);
    for (const Edge &edge : result.graph->edges)
        if (edge.from != edge.to)
            ends[edge.from] = is_alone[edge.from] = is_alone[edge.to] = false;
    for (unsigned stage : result.objects->ends)
        ends[stage] = true;
    for (bool is_changed = true; is_changed;) {
        is_changed = false;
        for (const Edge &edge : result.graph->edges)
            if (ends[edge.to] && !ends[edge.from])
                ends[edge.from] = true, is_changed = true;
    }
    std::vector<std::string> without, alone;
    for (unsigned i = 0; i < stages.size(); i++)
        if (stages[i].value && is_alone[i])
            alone.push_back(stages[i].name);
        else if (stages[i].kind != "entry" && !ends[i])
            without.push_back(stages[i].name);
    bool has_ends = false;
    for (unsigned i = 0; i < stages.size(); i++)
        has_ends |= stages[i].kind != "entry" && ends[i];
    if (!alone.empty() && alone.size() < stages.size())
        result.doubts.push_back({"no_way", nullptr,
                                 "no stage is seen to lead to " + join(alone, ", ") +
                                     ", and nothing to follow: an ordinary end of a request may be missing",
                                 "say what leads there: [[stage]] with after = [...]"});
    if (!without.empty() && has_ends)
        result.doubts.push_back({"no_end", nullptr,
                                 "no end of a request is seen from " + join(without, ", ") +
                                     ": no stage after it frees the request, or is the last one",
                                 "if requests end there, say how: [[stage]] with after = [...], or [[free]]"});
}

static void find_globals(Result &result, const Calls &calls) {
    MapVector<const GlobalVariable *, Global> found;
    const DataLayout &layout = calls.module.getDataLayout();
    auto note = [&](const Value *value, unsigned stage, bool is_write) {
        const Value *base = value;
        while (const auto *gep = dyn_cast<GEPOperator>(base))
            base = gep->getPointerOperand();
        const auto *variable = dyn_cast<GlobalVariable>(base);
        if (!variable || variable->isDeclaration() || variable->getName().starts_with(".str") ||
            variable->hasPrivateLinkage())
            return;
        Global &global = found[variable];
        if (!global.variable) {
            global.variable = variable;
            global.name = variable->getName().str();
            global.bytes = layout.getTypeAllocSize(variable->getValueType());
            global.align = variable->getAlign() ? variable->getAlign()->value()
                                                : layout.getABITypeAlign(variable->getValueType()).value();
            SmallVector<DIGlobalVariableExpression *, 1> infos;
            variable->getDebugInfo(infos);
            if (!infos.empty()) {
                const DIGlobalVariable *info = infos[0]->getVariable();
                global.place = {absolute_path(info->getDirectory().str(), info->getFilename().str()), info->getLine()};
                global.name = info->getName().str();
                // A function's static variable contains its function's name in the code.
                if (auto *scope = dyn_cast_or_null<DISubprogram>(info->getScope()))
                    global.name = scope->getName().str() + "." + global.name;
            }
        }
        global.stages.insert(stage);
        global.is_written |= is_write;
    };
    for (unsigned i = 0; i < result.graph->stages.size(); i++) {
        auto scan = [&](const Instruction &instruction) {
            const auto *store = dyn_cast<StoreInst>(&instruction);
            for (const Value *operand : instruction.operands()) {
                if (!operand->getType()->isPointerTy())
                    continue;
                bool is_write = (store && operand == store->getPointerOperand()) ||
                                (isa<CallBase>(instruction) && !isa<Function>(operand)) ||
                                isa<AtomicRMWInst>(instruction);
                note(operand, i, is_write);
            }
        };
        for (const Function *function : result.graph->stages[i].functions)
            for (const Instruction &instruction : instructions(*function))
                scan(instruction);
        for (const BasicBlock *block : result.graph->stages[i].blocks)
            for (const Instruction &instruction : *block)
                scan(instruction);
    }
    for (auto &[variable, global] : found) {
        if (variable->isConstant())
            global.is_written = false;
        result.globals.push_back(global);
    }
    std::stable_sort(result.globals.begin(), result.globals.end(), [](const Global &a, const Global &b) {
        return std::tie(a.name, a.place.file, a.place.line) < std::tie(b.name, b.place.file, b.place.line);
    });
}

/// Sorts stages: beginnings first, then in the order of the states or of the source.
static void find_order(Result &result) {
    const StageGraph &graph = *result.graph;
    for (bool wants_entries : {true, false})
        for (unsigned i = 0; i < graph.stages.size(); i++)
            if ((graph.stages[i].kind == "entry") == wants_entries)
                result.order.push_back(i);
}

void complete(Result &result, const Calls &calls) {
    for (const Function &function : calls.module)
        result.functions += !function.isDeclaration();
    find_globals(result, calls);
    find_order(result);
    for (const Object &object : result.objects->all) {
        if (object.live.empty() && !object.is_temporary)
            continue;
        bool is_shared = object.scope == Object::shared || object.is_temporary;
        (is_shared ? result.shared_objects : result.request_objects).push_back(&object);
    }
    auto by_id = [](const Object *a, const Object *b) {
        return a->is_request != b->is_request ? a->is_request : a->id < b->id;
    };
    std::sort(result.request_objects.begin(), result.request_objects.end(), by_id);
    std::sort(result.shared_objects.begin(), result.shared_objects.end(), by_id);
    for (unsigned i = 0; i < result.graph->stages.size(); i++) {
        State state;
        auto add = [&](uint64_t number, uint64_t bytes, uint64_t least) {
            auto lines = [&](uint64_t n) { return number * ((n + result.line_bytes - 1) / result.line_bytes); };
            state.bytes += number * bytes, state.lines += lines(bytes);
            state.least_bytes += number * least, state.least_lines += lines(least);
        };
        // A request structure that is never allocated is in an array.
        for (const std::string &name : result.objects->request_records)
            if (none_of(result.request_objects, [&](const Object *o) { return o->is_request && o->record == name; }))
                if (auto record = result.program->facts.records.find(name);
                    record != result.program->facts.records.end())
                    add(1, record->second.bytes, record->second.bytes);
        for (const Object *object : result.request_objects) {
            if (!object->live.count(i))
                continue;
            // One element of an array of requests belongs to this request.
            if (object->is_request && object->size.kind == Size::n_constant) {
                add(1, object->size.unit, object->size.unit);
                continue;
            }
            if (!object->size.bytes || !object->per_request) {
                state.is_bound = false;
                if (!object->size.bytes)
                    continue;
            }
            if (!object->size.most)
                state.is_bound = false;
            uint64_t bytes = *object->size.bytes;
            bool is_told = !object->size.from.empty();
            add(object->per_request.value_or(1), bytes, is_told ? bytes : object->size.least);
        }
        result.states.push_back(state);
    }
    for (const auto *list : {&result.pointers->warnings(), &result.graph->doubts, &result.objects->doubts})
        for (const Pointers::Warning &warning : *list) {
            static const char *const unsound[] = {"unresolved_call",  "pointer_from_integer", "unknown_callback",
                                                  "resolved_by_type", "free_handed_out",      "free_by_pointer"};
            (is_contained(unsound, warning.kind) ? result.unsound : result.doubts).push_back(warning);
        }
    doubt_ends(result);
    for (const Object *object : result.request_objects)
        if (auto site = find_if(object->alloc, [](const Site &one) { return !one.stages.empty(); });
            !object->is_freed_on_every_path && site != object->alloc.end() && object->scope == Object::request &&
            object->per_request)
            result.doubts.push_back(
                {"may_leak", site->call,
                 object->free.empty()
                     ? object->id +
                           " is allocated here and never freed by a stage, so it counts at every stage after it"
                     : object->id + " is allocated here and not freed on every path that ends its request",
                 std::string("free it, or say with [[free]] what does") +
                     (object->is_request ? "; where ended requests go on a free list, [[malloc]] is the function that "
                                           "takes from it and [[free]] the one that puts back"
                                         : "")});
    if (result.objects->request_records.size() == 1) {
        bool is_allocated = false;
        for (const Object *object : result.request_objects)
            is_allocated |= object->is_request;
        if (!is_allocated)
            result.doubts.push_back({"request_not_allocated", nullptr,
                                     "the request structure " + *result.objects->request_records.begin() +
                                         " is never allocated by a stage: an array, a pool, or start-up holds it; it "
                                         "counts once at each stage",
                                     "[[malloc]] if a function of the program hands it out"});
    }
    auto key = [](const Pointers::Warning &w) {
        Place p = w.at ? place_of(*w.at) : Place{};
        // A guess about the stages affects everything else.
        return std::make_tuple(w.kind != "state_guessed", w.kind, p.file, p.line, w.what);
    };
    for (auto *list : {&result.unsound, &result.doubts}) {
        std::sort(list->begin(), list->end(), [&](const auto &a, const auto &b) { return key(a) < key(b); });
        list->erase(
            std::unique(list->begin(), list->end(), [&](const auto &a, const auto &b) { return key(a) == key(b); }),
            list->end());
    }
}

} // namespace stingy
