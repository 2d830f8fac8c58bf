#include "memwalk/objects.h"
#include "memwalk/escape.h"
#include "memwalk/sizes.h"
#include "pch.h"

using namespace llvm;

namespace stingy {
namespace {

std::string identifier(StringRef text) {
    std::string id;
    for (char c : text) {
        if (isAlnum(c) || c == '_')
            id += c;
        else if (!id.empty() && id.back() != '_')
            id += '_';
    }
    while (!id.empty() && id.back() == '_')
        id.pop_back();
    if (id.empty() || isDigit(id[0]))
        id = "block_" + id;
    return id;
}

/// Returns the last field or variable that an expression names: `c->buffers[i]` gives buffers.
std::string last_name(StringRef text) {
    std::string name;
    unsigned depth = 0;
    std::string word;
    for (char c : text) {
        if (c == '[' || c == '(')
            depth++;
        if (depth == 0 && (isAlnum(c) || c == '_'))
            word += c;
        else if (!word.empty() && depth == 0) {
            name = word;
            word.clear();
        }
        if ((c == ']' || c == ')') && depth)
            depth--;
    }
    return word.empty() ? name : word;
}

class Finder {
  public:
    Finder(const Program &program, const Config &config, const Calls &calls, const Allocators &allocators,
           const StageGraph &graph, Objects &objects, std::string &error)
        : program(program), config(config), calls(calls), allocators(allocators), graph(graph), objects(objects),
          error(error), sizes(calls),
          escapes(calls, allocators, graph, [this](const Value &value) { return is_request(value); }) {}

    bool run() {
        if (!find_requests())
            return false;
        collect();
        join();
        find_unknown_resized();
        for (const CallBase *call : freeing)
            add_free(*call);
        find_handed_out();
        find_kept_by_malloc();
        find_ownership(program, calls, objects);
        name_all();
        return apply_configuration();
    }

  private:
    bool find_requests() {
        for (const std::string &name : config.requests) {
            std::string record = program.facts.record_named(name);
            if (record.empty()) {
                error = config.requests_place.text() + ": the program has no structure `" + name +
                        "`; name the structure that stands for one request";
                return false;
            }
            objects.request_records.insert(record);
        }
        for (auto &[name, record] : program.facts.records)
            if (record.is_request)
                objects.request_records.insert(name);
        if (objects.request_records.empty())
            for (const StateCell &state : graph.states)
                objects.request_records.insert(state.cell.record);
        // Without other knowledge, the first argument of functions that queue is the request.
        if (objects.request_records.empty())
            objects.doubts.push_back({"no_request", nullptr,
                                      "no structure is known to stand for one request; every object that a stage "
                                      "allocates or frees counts as a request's",
                                      "[scheduler] requests = [\"structure\"], or STINGY_REQUEST"});
        return true;
    }

    const WrittenCall *written(const CallBase &call, const Place &place) const {
        auto range = program.facts.calls.equal_range({place.file, place.line});
        std::string name = call.getCalledFunction() ? source_name(*call.getCalledFunction()) : "";
        const WrittenCall *best = nullptr;
        unsigned column = call.getDebugLoc() ? call.getDebugLoc().getCol() : 0;
        for (auto it = range.first; it != range.second; ++it)
            if (it->second.callee == name && (!best || it->second.column == column))
                best = &it->second;
        return best;
    }

    Site site(const CallBase &call) const {
        Site s;
        s.call = &call;
        s.place = place_of(call);
        s.allocator = call.getCalledFunction() ? source_name(*call.getCalledFunction()) : "";
        s.function = source_name(*call.getFunction());
        s.stages = graph.stages_of(call);
        s.written = written(call, s.place);
        s.column = s.written ? s.written->column : call.getDebugLoc() ? call.getDebugLoc().getCol() : 0;
        return s;
    }

    bool is_request(const Value &value) const {
        if (const auto *variable = dyn_cast<AllocaInst>(&value)) {
            const auto *record = dyn_cast<StructType>(variable->getAllocatedType());
            return record && objects.request_records.count(plain_name(*record));
        }
        const auto *call = dyn_cast<CallBase>(&value);
        const WrittenCall *as = call ? written(*call, place_of(*call)) : nullptr;
        return as && objects.request_records.count(as->record);
    }

    void collect() {
        for (const Function &function : calls.module) {
            if (function.isDeclaration())
                continue;
            const Allocator *wrapper = allocators.free_of(function);
            if (!wrapper)
                wrapper = allocators.malloc_of(function);
            for (const Instruction &instruction : instructions(function)) {
                const auto *call = dyn_cast<CallBase>(&instruction);
                if (!call)
                    continue;
                if (wrapper) {
                    // Finds the objects that the call frees besides its argument.
                    const Allocator *how = allocators.free_of(*call);
                    if (!how || how->pointer < 0 || unsigned(how->pointer) >= call->arg_size())
                        continue;
                    const auto *given = dyn_cast<Argument>(call->getArgOperand(how->pointer));
                    if (!given || int(given->getArgNo()) != wrapper->pointer)
                        freeing.push_back(call);
                } else if (const Allocator *how = allocators.malloc_of(*call)) {
                    Site s = site(*call);
                    if (how->through >= 0 && s.written) {
                        WrittenCall &stored = objects.stored_by_argument.emplace_back(*s.written);
                        stored.type = stored.stored_type, stored.record = stored.stored_record;
                        stored.left = stored.stored_left;
                        s.written = &stored;
                    }
                    uint64_t type_bytes = 0;
                    if (!how->type.empty())
                        if (std::string record = program.facts.record_named(how->type); !record.empty())
                            type_bytes = program.facts.records.at(record).bytes;
                    if (how->type == "*" && s.written && !s.written->record.empty() &&
                        program.facts.records.count(s.written->record))
                        type_bytes = program.facts.records.at(s.written->record).bytes;
                    s.size = sizes.of(*call, *how, s.written, type_bytes);
                    sites.push_back(s);
                    hows.push_back(how);
                    is_temporary.push_back(!s.stages.empty() &&
                                           !objects.request_records.count(record_of(sites.size() - 1)) &&
                                           escapes.is_temporary(*call));
                } else if (allocators.free_of(*call))
                    freeing.push_back(call);
                else if (!call->getCalledFunction() &&
                         any_of(calls.pointers.callees(*call),
                                [&](const Function *callee) { return allocators.free_of(*callee); }))
                    freeing.push_back(call);
            }
        }
    }

    unsigned root(unsigned i) {
        while (parent[i] != i)
            i = parent[i] = parent[parent[i]];
        return i;
    }

    std::string record_of(unsigned i) const {
        if (!hows[i]->type.empty() && hows[i]->type != "*")
            return program.facts.record_named(hows[i]->type);
        if (hows[i]->is_pool)
            return ""; // pools are distinguished by their holder
        const WrittenCall *w = sites[i].written;
        if (!w || w->record.empty())
            return "";
        // An array of structures is a separate object: its size does not give that of one structure.
        return w->record;
    }

    /// Whether the structure is the wanted one or contains it.
    bool has_member(const std::string &record, const std::string &wanted, unsigned depth = 0) const {
        if (record == wanted)
            return true;
        auto known = program.facts.records.find(record);
        return known != program.facts.records.end() && depth < 6 &&
               any_of(
                   known->second.fields,
                   [&](const Field &field) {
                       return !field.record.empty() && has_member(field.record, wanted, depth + 1);
                   });
    }

    /// Decides by the field's type: a pointer to one structure does not hold an unrelated one. This corrects the
    /// effect of generic containers, which join their contents, so that pointers seem to flow where they do not.
    /// is_exact: fields without a particular type do not count.
    bool may_hold(const Cell &cell, const std::string &record, bool is_exact) const {
        if (record.empty())
            return true;
        auto owner = program.facts.records.find(cell.record);
        const Field *field =
            owner == program.facts.records.end() ? nullptr : owner->second.find(field_name(program.facts, cell));
        StringRef type = field ? StringRef(field->type) : "";
        while (type.consume_back("*") || type.consume_back(" ")) {
        }
        type.consume_front("const ");
        std::string pointed = program.facts.record_named(type.str());
        return pointed.empty() ? !is_exact : has_member(record, pointed) || has_member(pointed, record);
    }

    void join() {
        parent.resize(sites.size());
        std::map<const CallBase *, unsigned> number;
        std::map<std::tuple<std::string, bool, bool>, unsigned> by_record;
        std::map<Cell, unsigned> by_holder;
        std::map<std::tuple<std::string, std::string, unsigned, unsigned, std::string>, unsigned> by_place;
        holders.resize(sites.size());
        for (unsigned i = 0; i < sites.size(); i++)
            parent[i] = i, number[sites[i].call] = i;
        for (unsigned i = 0; i < sites.size(); i++) {
            std::string record = record_of(i), pointed = sites[i].written ? sites[i].written->record : "";
            // Generic containers join their contents; a temporary is stored nowhere.
            if (!is_temporary[i])
                for (const Cell *cell : calls.pointers.holders(*sites[i].call))
                    if (may_hold(*cell, hows[i]->is_pool ? pointed : record, hows[i]->is_pool))
                        holders[i].push_back(*cell);
            if (!record.empty()) {
                bool is_one = program.facts.records.count(record) && sites[i].size.kind == Size::constant &&
                              *sites[i].size.bytes == program.facts.records.at(record).bytes;
                bool is_several = sites[i].size.kind == Size::n_constant || hows[i]->pointer >= 0;
                auto [found, is_new] =
                    by_record.emplace(std::make_tuple(record, is_several && !is_one, bool(is_temporary[i])), i);
                if (!is_new)
                    parent[root(i)] = root(found->second);
            }
            // An inline function of a header is compiled in each file, but has one text.
            const Site &s = sites[i];
            auto [same, is_new_place] =
                by_place.emplace(std::make_tuple(s.function, s.place.file, s.place.line, s.column, s.allocator), i);
            if (!is_new_place && sites[same->second].call->getFunction() != s.call->getFunction())
                parent[root(i)] = root(same->second);
            if (hows[i]->pointer >= 0 && unsigned(hows[i]->pointer) < sites[i].call->arg_size())
                for (const Target *target : calls.pointers.targets(sites[i].call->getArgOperand(hows[i]->pointer)))
                    if (target->kind == Target::block)
                        if (auto found = number.find(cast<CallBase>(target->value));
                            found != number.end() && record_of(found->second) == record)
                            parent[root(i)] = root(found->second);
        }
        for (unsigned i = 0; i < sites.size(); i++)
            if (record_of(i).empty())
                for (const Cell &cell : holders[i]) {
                    // Objects in a pool keep its address, too.
                    if (hows[i]->is_pool && !objects.request_records.count(cell.record))
                        continue;
                    auto [found, is_new] = by_holder.emplace(cell, i);
                    if (!is_new)
                        parent[root(i)] = root(found->second);
                }
        std::map<unsigned, unsigned> object_of_root;
        for (unsigned i = 0; i < sites.size(); i++) {
            auto [found, is_new] = object_of_root.emplace(root(i), objects.all.size());
            if (is_new)
                objects.all.emplace_back();
            Object &object = objects.all[found->second];
            Site &s = sites[i];
            objects.object_of[s.call] = found->second;
            bool is_only_temporary = object.is_temporary || (object.alloc.empty() && object.realloc.empty());
            object.is_temporary = is_only_temporary && is_temporary[i];
            // stingify handles the functions of the C library that allocate through an argument.
            if (hows[i]->is_foreign && (hows[i]->through < 0 || !hows[i]->within.empty()))
                object.hindrances.push_back(
                    {s.place,
                     (hows[i]->within.empty() ? s.allocator : hows[i]->within + ", called by " + s.allocator + ",") +
                         " allocates it, from outside"});
            object.is_pooled |= hows[i]->pool >= 0;
            object.is_pool |= hows[i]->is_pool;
            if (hows[i]->is_pool)
                for (const Cell &cell : holders[i])
                    object.is_pool_of_request |= objects.request_records.count(cell.record) != 0;
            bool is_first = object.alloc.empty() && object.realloc.empty();
            object.size = is_first ? s.size : Sizes::join(object.size, s.size);
            if (is_first) {
                object.record = record_of(i);
                object.type = s.written && !s.written->type.empty() ? s.written->type
                              : object.record.empty()               ? "char"
                                                                    : object.record;
            }
            if (s.written)
                object.align = std::max(object.align, s.written->align);
            for (const Cell &cell : holders[i])
                if (!is_contained(object.holders, cell))
                    object.holders.push_back(cell);
            bool is_realloc =
                hows[i]->pointer >= 0 && !(unsigned(hows[i]->pointer) < s.call->arg_size() &&
                                           isa<ConstantPointerNull>(s.call->getArgOperand(hows[i]->pointer)));
            (is_realloc ? object.realloc : object.alloc).push_back(s);
        }
        for (unsigned i = 0; i < sites.size(); i++)
            if (int pool = hows[i]->pool; pool >= 0 && unsigned(pool) < sites[i].call->arg_size())
                for (const Target *target : calls.pointers.targets(sites[i].call->getArgOperand(pool)))
                    if (target->kind == Target::block)
                        if (auto known = objects.object_of.find(cast<CallBase>(target->value));
                            known != objects.object_of.end() && objects.all[known->second].is_pool)
                            objects.all[objects.object_of[sites[i].call]].pools.insert(known->second);
        for (unsigned i = 0; i < sites.size(); i++)
            if (int pointer = hows[i]->pointer; pointer >= 0 && unsigned(pointer) < sites[i].call->arg_size()) {
                std::set<unsigned> others;
                for (const Target *target : calls.pointers.targets(sites[i].call->getArgOperand(pointer)))
                    if (target->kind == Target::block)
                        if (auto known = objects.object_of.find(cast<CallBase>(target->value));
                            known != objects.object_of.end() && known->second != objects.object_of[sites[i].call])
                            others.insert(known->second);
                for (unsigned other : others)
                    objects.all[other].maybe_resized.push_back(sites[i]);
            }
        for (Object &object : objects.all) {
            std::sort(object.holders.begin(), object.holders.end());
            object.is_request = objects.request_records.count(object.record);
        }
    }

    /// Whether blocks with an unknown allocation may come here: no allocated block reaches the pointer, or only one
    /// resized from such a block.
    bool is_unknown(const Value *pointer) const {
        if (isa<Constant>(pointer))
            return false;
        bool has_block = false;
        for (const Target *target : calls.pointers.targets(pointer)) {
            if (any_of(objects.unknown_resized, [&](const Site &s) { return s.call == target->value; }))
                return true;
            has_block |= target->kind == Target::block;
        }
        return !has_block;
    }

    void find_unknown_resized() {
        for (unsigned i = 0; i < sites.size(); i++)
            if (int pointer = hows[i]->pointer; pointer >= 0 && unsigned(pointer) < sites[i].call->arg_size() &&
                                                is_unknown(sites[i].call->getArgOperand(pointer)))
                objects.unknown_resized.push_back(sites[i]);
    }

    void add_free(const CallBase &call) {
        const Allocator *how = allocators.free_of(call);
        bool is_indirect = !how, is_always = true;
        for (const Function *callee : calls.pointers.callees(call))
            if (const Allocator *one = allocators.free_of(*callee))
                how = one;
            else
                is_always = false;
        if (how->pointer < 0 || unsigned(how->pointer) >= call.arg_size())
            return;
        Site s = site(call);
        s.is_indirect = is_indirect;
        std::set<unsigned> found;
        for (const Target *target : calls.pointers.targets(call.getArgOperand(how->pointer)))
            if (target->kind == Target::block)
                if (auto known = objects.object_of.find(cast<CallBase>(target->value));
                    known != objects.object_of.end())
                    found.insert(known->second);
        const std::set<unsigned> all = found;
        // A generic container joins types; the written type of the pointer distinguishes them.
        if (found.size() > 1 && s.written && !s.written->record.empty()) {
            std::set<unsigned> same;
            for (unsigned i : found)
                if (objects.all[i].record == s.written->record)
                    same.insert(i);
            if (!same.empty())
                found = same;
        }
        // Text is not a structure.
        if (s.written && any_of(ArrayRef<StringRef>{"char", "unsigned char", "u_char"},
                                [&](StringRef type) { return type == s.written->type; }))
            for (auto it = found.begin(); it != found.end();)
                it = objects.all[*it].record.empty() ? std::next(it) : found.erase(it);
        // The request comes from outside the program.
        if (found.empty() && s.written && !s.written->record.empty())
            for (unsigned i = 0; i < objects.all.size(); i++)
                if (objects.all[i].record == s.written->record && objects.all[i].size.kind == Size::constant)
                    found.insert(i);
        bool is_untold = any_of(calls.pointers.callees(call),
                                [&](const Function *callee) { return calls.pointers.is_untold_free(*callee); });
        auto hinder = [&](Object &object) {
            if (is_indirect && is_untold)
                object.hindrances.push_back({s.place, "free is called through a pointer here"});
        };
        for (unsigned i : all)
            if (!found.count(i) && !objects.all[i].is_pooled && !objects.all[i].is_pool && !how->is_pool) {
                objects.all[i].maybe_freed.push_back(s);
                hinder(objects.all[i]);
            }
        for (unsigned i : found) {
            // An object in a pool ends with the pool or by the pool's function; a pool ends only by its function.
            if ((objects.all[i].is_pooled && how->pool < 0) || objects.all[i].is_pool != how->is_pool)
                continue;
            objects.all[i].free.push_back(s);
            if (is_always)
                objects.freed_by[&call].push_back(i);
            hinder(objects.all[i]);
        }
        if (is_unknown(call.getArgOperand(how->pointer))) {
            if (!is_indirect)
                objects.unknown_freed.push_back(s);
            else if (is_untold)
                objects.doubts.push_back({"free_by_pointer", &call,
                                          "free is called through a pointer here, and what it gets was not seen to be "
                                          "allocated",
                                          "[[handed_on]] with the freed objects"});
        }
        if (found.empty() && !s.stages.empty() && !is_indirect)
            objects.doubts.push_back({"free_of_unknown", &call,
                                      "the allocation of the block that is freed here is not seen",
                                      "name its allocator with [[malloc]]"});
    }

    /// Functions outside that receive `free` may call it with any other argument that they received.
    void find_handed_out() {
        std::map<unsigned, const CallBase *> given; // the first call that gives the object away
        if (!calls.pointers.frees_handed_out().empty())
            for (const CallBase *other : calls.pointers.calls_to_outside())
                for (const Value *argument : other->args())
                    for (const Target *target : calls.pointers.targets(argument))
                        if (target->kind == Target::block)
                            if (auto known = objects.object_of.find(cast<CallBase>(target->value));
                                known != objects.object_of.end())
                                given.emplace(known->second, other);
        std::set<std::string> seen;
        for (const CallBase *call : calls.pointers.frees_handed_out()) {
            Place at = place_of(*call);
            if (!seen.insert(at.text()).second)
                continue;
            for (auto &[object, other] : given)
                objects.all[object].hindrances.push_back(
                    {at, "free is passed here to " + source_name(*call->getCalledFunction()) +
                             ", from outside, and the object to " + source_name(*other->getCalledFunction()) +
                             " (line " + std::to_string(place_of(*other).line) + "): it may be freed there"});
        }
    }

    /// Finds objects that functions outside resize or query malloc about, so that they must remain malloc's.
    void find_kept_by_malloc() {
        auto hinder = [&](const CallBase &call, const std::vector<const Target *> &targets, std::string why = "") {
            if (why.empty())
                why = source_name(*call.getCalledFunction()) + " takes blocks of malloc alone";
            for (const Target *target : targets)
                if (target->kind == Target::block && target->value != &call)
                    if (auto known = objects.object_of.find(cast<CallBase>(target->value));
                        known != objects.object_of.end())
                        objects.all[known->second].hindrances.push_back({place_of(call), why});
        };
        for (const CallBase *call : calls.pointers.indirect_calls())
            for (const Function *callee : calls.pointers.callees(*call))
                if (const Allocator *how = allocators.malloc_of(*callee);
                    how && how->pointer >= 0 && unsigned(how->pointer) < call->arg_size())
                    hinder(*call, calls.pointers.targets(call->getArgOperand(how->pointer)),
                           source_name(*callee) + " is called here through a pointer");
        for (size_t i = 0; i < sites.size(); i++)
            hinder(*sites[i].call, calls.pointers.resized(*sites[i].call));
        for (const CallBase *call : calls.pointers.calls_to_outside())
            if (const Function *callee = call->getCalledFunction();
                callee && call->arg_size() &&
                is_contained({"malloc_usable_size", "reallocf", "free_sized", "free_aligned_sized", "__libc_free",
                              "__libc_realloc"},
                             callee->getName()))
                hinder(*call, calls.pointers.targets(call->getArgOperand(0)));
    }

    void name_all() {
        std::set<std::string> taken;
        // Sorts in the order of the source.
        auto first = [](const Object &o) {
            const Site &s = o.alloc.empty() ? o.realloc.front() : o.alloc.front();
            return std::make_tuple(s.place.file, s.place.line, s.column);
        };
        std::vector<unsigned> order(objects.all.size());
        for (unsigned i = 0; i < order.size(); i++)
            order[i] = i;
        std::sort(order.begin(), order.end(),
                  [&](unsigned a, unsigned b) { return first(objects.all[a]) < first(objects.all[b]); });
        for (unsigned i : order) {
            Object &object = objects.all[i];
            const Site &s = object.alloc.empty() ? object.realloc.front() : object.alloc.front();
            std::string name;
            bool is_array =
                object.size.kind == Size::n_constant || (!object.alloc.empty() ? false : !object.realloc.empty());
            if (!object.record.empty())
                name = object.record + (is_array ? "s" : "");
            else {
                // Prefers a request's field to others, and a pointer to a number that may have held it.
                const Cell *best = nullptr;
                auto rank = [&](const Cell &cell) {
                    auto record = program.facts.records.find(cell.record);
                    const Field *field = record == program.facts.records.end()
                                             ? nullptr
                                             : record->second.find(field_name(program.facts, cell));
                    bool is_number = field && !field->is_pointer && !field->is_array && field->record.empty();
                    return std::make_pair(!is_number, objects.request_records.count(cell.record) != 0);
                };
                for (const Cell &cell : object.holders)
                    if (object.is_pool && object.is_pool_of_request && !objects.request_records.count(cell.record))
                        continue;
                    else if (!best || rank(cell) > rank(*best))
                        best = &cell;
                if (best)
                    name = best->record + "_" + last_name(field_name(program.facts, *best));
                else
                    name = s.function + "_" + (s.written ? last_name(s.written->left) : "");
            }
            name = identifier(name);
            std::string unique = name;
            for (unsigned n = 2; !taken.insert(unique).second; n++)
                unique = name + "_" + std::to_string(n);
            object.id = unique;
        }
        for (Object &object : objects.all)
            for (auto *list :
                 {&object.alloc, &object.realloc, &object.free, &object.maybe_freed, &object.maybe_resized})
                std::sort(list->begin(), list->end(), [](const Site &a, const Site &b) {
                    return std::tie(a.place.file, a.place.line, a.column) <
                           std::tie(b.place.file, b.place.line, b.column);
                });
    }

    bool apply_configuration() {
        for (const ObjectSize &told : config.objects) {
            bool is_used = false;
            std::string record = told.type.empty() ? "" : program.facts.record_named(told.type);
            for (Object &object : objects.all) {
                if (!told.id.empty() ? object.id != told.id : object.record != (record.empty() ? told.type : record))
                    continue;
                is_used = true;
                if (told.typical && object.size.kind != Size::constant)
                    object.size.bytes = told.typical, object.size.from = "configuration";
                if (told.most) {
                    if (object.size.kind == Size::constant && *told.most < *object.size.bytes) {
                        error = told.place.text() + ": max_bytes is " + std::to_string(*told.most) + ", but " +
                                object.id + " is always " + std::to_string(*object.size.bytes) +
                                " bytes; remove max_bytes";
                        return false;
                    }
                    if (object.size.kind != Size::constant)
                        object.size.most = told.most, object.size.from = "configuration";
                }
                if (told.per_request)
                    object.per_request = told.per_request;
            }
            if (!is_used) {
                error = told.place.text() + ": there is no object `" + (told.id.empty() ? told.type : told.id) +
                        "`; memwalk --report without this section lists them";
                return false;
            }
        }
        return true;
    }

    const Program &program;
    const Config &config;
    const Calls &calls;
    const Allocators &allocators;
    const StageGraph &graph;
    Objects &objects;
    std::string &error;
    Sizes sizes;
    Escapes escapes;
    std::vector<Site> sites;
    std::vector<bool> is_temporary;
    std::vector<const Allocator *> hows;
    std::vector<const CallBase *> freeing;
    std::vector<unsigned> parent;
    std::vector<std::vector<Cell>> holders;
};

} // namespace

bool find_objects(const Program &program, const Config &config, const Calls &calls, const Allocators &allocators,
                  const StageGraph &graph, Objects &objects, std::string &error) {
    return Finder(program, config, calls, allocators, graph, objects, error).run();
}

} // namespace stingy
