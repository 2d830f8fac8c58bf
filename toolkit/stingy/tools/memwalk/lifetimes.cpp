#include "memwalk/lifetimes.h"
#include "memwalk/effects.h"
#include "pch.h"

using namespace llvm;

namespace stingy {
namespace {

class Lifetimes {
  public:
    Lifetimes(const Calls &calls, const StageGraph &graph, Objects &objects)
        : calls(calls), graph(graph), objects(objects), effects(calls, graph, objects), count(objects.all.size()),
          none(effects.none), every(effects.every) {}

    void run() {
        std::vector<Set> at(graph.stages.size(), none);
        for (unsigned i = 0; i < at.size(); i++)
            for (unsigned o = 0; o < count; o++)
                for (auto *list : {&objects.all[o].alloc, &objects.all[o].realloc})
                    for (const Site &site : *list)
                        if (is_contained(site.stages, i))
                            at[i].set(o);
        // Requests that start-up allocates enter at the beginning.
        for (unsigned o = 0; o < count; o++)
            if (const Object &object = objects.all[o];
                object.is_request && object.size.kind == Size::constant && is_from_start(object))
                for (unsigned i : beginnings())
                    at[i].set(o);
        std::vector<Set> dead;
        for (const Edge &edge : graph.edges) {
            dead.push_back(dead_over(edge));
            // Objects in pools end with their pools.
            for (unsigned o = 0; o < count; o++)
                if (!objects.all[o].pools.empty() &&
                    all_of(objects.all[o].pools, [&](unsigned pool) { return dead.back().test(pool); }))
                    dead.back().set(o);
        }
        bool is_changed = true;
        while (is_changed) {
            is_changed = false;
            for (unsigned i = 0; i < graph.edges.size(); i++) {
                const Edge &edge = graph.edges[i];
                Set next = unite(at[edge.to], without(at[edge.from], dead[i]));
                if (next != at[edge.to])
                    at[edge.to] = next, is_changed = true;
            }
        }
        // Objects that stages free, but that start-up or code outside the stages allocates, enter at the beginning.
        for (unsigned o = 0; o < count; o++) {
            Object &object = objects.all[o];
            for (unsigned i = 0; i < at.size(); i++)
                if (at[i].test(o))
                    object.live.insert(i);
            bool is_from_outside = false;
            for (auto *list : {&object.alloc, &object.realloc})
                for (const Site &site : *list)
                    is_from_outside |= site.stages.empty();
            if (is_from_outside)
                for (const Site &site : object.free)
                    object.live.insert(site.stages.begin(), site.stages.end());
            if (object.is_temporary)
                object.live.clear();
        }
        find_leaks(at, dead);
        for (Object &object : objects.all)
            if (!object.pools.empty())
                object.is_freed_on_every_path |=
                    all_of(object.pools, [&](unsigned pool) { return objects.all[pool].is_freed_on_every_path; });
    }

  private:
    static bool is_from_start(const Object &object) {
        for (const auto *list : {&object.alloc, &object.realloc})
            for (const Site &site : *list)
                if (!site.stages.empty())
                    return false;
        return true;
    }
    /// Returns the stages to which no other stage leads; all stages if there are none.
    std::vector<unsigned> beginnings() const {
        std::vector<unsigned> found, all;
        for (unsigned i = 0; i < graph.stages.size(); i++) {
            all.push_back(i);
            if (none_of(graph.edges, [&](const Edge &edge) { return edge.to == i && edge.from != i; }))
                found.push_back(i);
        }
        return found.empty() ? all : found;
    }

    /// Returns the objects that no longer exist when the request arrives at the edge's stage.
    Set dead_over(const Edge &edge) {
        std::optional<Set> dead;
        auto add = [&](const Set &part) { dead = dead ? meet(*dead, part) : part; };
        if (!edge.places.empty())
            add(dead_over(edge.from, edge.places, false));
        if (!edge.calls.empty())
            add(dead_over(edge.from, edge.calls, true));
        if (!edge.returns.empty())
            add(graph.stages[edge.from].function ? effects.frees_of(*graph.stages[edge.from].function) : none);
        return dead.value_or(none);
    }

    /// Returns the functions of the stage from which calls lead to one of the places.
    std::set<const Function *> leading_to(const Stage &stage, const std::vector<const Instruction *> &places) const {
        std::set<const Function *> found;
        std::vector<const Function *> work;
        for (const Instruction *place : places)
            if (stage.functions.count(place->getFunction()) && found.insert(place->getFunction()).second)
                work.push_back(place->getFunction());
        while (!work.empty()) {
            const Function *function = work.back();
            work.pop_back();
            for (const CallBase *call : calls.callers(*function))
                if (stage.functions.count(call->getFunction()) && found.insert(call->getFunction()).second)
                    work.push_back(call->getFunction());
        }
        return found;
    }

    struct Search {
        const Stage &stage;
        std::set<const Instruction *> places;
        bool is_call; ///< the next stage runs at the place, before the code after it
        std::set<const Function *> leading;
        std::map<const Function *, std::optional<Set>> memo;
    };

    /// Returns the objects that no longer exist after the stage ran along a path through one of the places.
    Set dead_over(unsigned stage, const std::vector<const Instruction *> &places, bool is_call) {
        const Stage &s = graph.stages[stage];
        Search search{s, {places.begin(), places.end()}, is_call, leading_to(s, places), {}};
        Set result = every;
        bool is_any = false;
        auto region = [&](const Effects::Blocks &blocks, const std::set<const BasicBlock *> &starts) {
            if (auto part = dead_in(search, blocks, starts))
                result &= *part, is_any = true;
        };
        if (!s.blocks.empty())
            region(s.blocks, s.starts);
        if (s.function) {
            Effects::Blocks blocks;
            for (const BasicBlock &block : *s.function)
                blocks.insert(&block);
            region(blocks, {&s.function->getEntryBlock()});
        }
        return is_any ? result : none;
    }

    std::optional<Set> dead_in(Search &search, const Effects::Blocks &blocks,
                               const std::set<const BasicBlock *> &starts) {
        std::vector<std::pair<const Instruction *, Set>> events; // with the objects that are dead within
        for (const BasicBlock *block : blocks)
            for (const Instruction &instruction : *block) {
                if (search.places.count(&instruction)) {
                    events.push_back({&instruction, none});
                    continue;
                }
                const auto *call = dyn_cast<CallBase>(&instruction);
                if (!call)
                    continue;
                for (const Function *callee : calls.pointers.callees(*call)) {
                    if (!search.leading.count(callee))
                        continue;
                    auto known = search.memo.find(callee);
                    if (known == search.memo.end()) {
                        search.memo[callee] = std::nullopt; // in a recursion only the outer call counts
                        Effects::Blocks inner;
                        for (const BasicBlock &b : *callee)
                            inner.insert(&b);
                        known = search.memo.insert_or_assign(callee, dead_in(search, inner, {&callee->getEntryBlock()}))
                                    .first;
                    }
                    if (known->second)
                        events.push_back({&instruction, *known->second});
                }
            }
        if (events.empty())
            return std::nullopt;
        auto in = effects.before(blocks, starts);
        std::map<const BasicBlock *, After> out;
        if (!search.is_call)
            out = effects.after(blocks);
        Set result = every;
        for (auto &[at, within] : events) {
            const BasicBlock *block = at->getParent();
            Set freed = in.count(block) ? effects.through(in[block], *block, at) : none;
            Set made = none;
            if (const auto *call = dyn_cast<CallBase>(at))
                made = effects.effect(*call).allocs;
            After later{none, none};
            if (!search.is_call)
                later = effects.back(out.count(block) ? out[block] : later, *block, at);
            Set gone = unite(within, without(freed, made));
            result &= unite(later.dead, without(gone, later.maybe_live));
        }
        return result;
    }

    /// Returns the request objects that hold an object, directly or through others.
    std::set<unsigned> owners(unsigned object) const {
        std::set<unsigned> found, seen;
        std::vector<unsigned> work{object};
        while (!work.empty()) {
            unsigned o = work.back();
            work.pop_back();
            if (!seen.insert(o).second)
                continue;
            if (objects.all[o].is_request)
                found.insert(o);
            for (const Cell &cell : objects.all[o].holders)
                for (unsigned other = 0; other < count; other++)
                    if (objects.all[other].record == cell.record)
                        work.push_back(other);
        }
        return found;
    }

    /// Returns the functions that a stage's code calls for the current request.
    const std::set<const Function *> &own_functions(unsigned number) {
        auto [known, is_new] = functions_of_own.try_emplace(number);
        if (!is_new)
            return known->second;
        std::set<const Function *> found;
        std::vector<const Function *> work;
        const Stage &stage = graph.stages[number];
        auto scan = [&](const Instruction &instruction) {
            if (const auto *call = dyn_cast<CallBase>(&instruction); call && effects.is_about_own(*call))
                for (const Function *callee : calls.pointers.callees(*call))
                    if (stage.functions.count(callee) && found.insert(callee).second)
                        work.push_back(callee);
        };
        for (const BasicBlock *block : stage.blocks) {
            found.insert(block->getParent());
            for (const Instruction &instruction : *block)
                scan(instruction);
        }
        if (stage.function && found.insert(stage.function).second)
            work.push_back(stage.function);
        while (!work.empty()) {
            const Function *function = work.back();
            work.pop_back();
            for (const Instruction &instruction : instructions(*function))
                scan(instruction);
        }
        return functions_of_own[number] = found;
    }

    struct End {
        unsigned stage;
        Set dead;
    };

    /// Returns the places where a request object is freed, and the objects that no longer exist then.
    std::vector<End> ends_of(unsigned request) {
        std::map<unsigned, std::vector<const Instruction *>> places;
        for (const Site &site : objects.all[request].free)
            for (unsigned stage : site.stages)
                if (effects.is_about_own(*site.call) && own_functions(stage).count(site.call->getFunction()))
                    places[stage].push_back(site.call);
        std::vector<End> ends;
        for (auto &[stage, at] : places) {
            ends.push_back({stage, dead_over(stage, at, false)});
            objects.ends.insert(stage);
        }
        return ends;
    }

    /// An object leaks if its request can end before it is freed, or if it can be allocated again.
    void find_leaks(const std::vector<Set> &at, const std::vector<Set> &dead) {
        std::map<unsigned, std::vector<End>> ends;
        for (unsigned o = 0; o < count; o++)
            if (objects.all[o].is_request)
                ends[o] = ends_of(o);
        for (unsigned o = 0; o < count; o++) {
            Object &object = objects.all[o];
            if (object.free.empty())
                continue;
            bool is_freed = true, has_end = false;
            if (object.is_request) {
                std::set<unsigned> reaches;
                for (const End &end : ends[o])
                    reaches.insert(end.stage);
                bool is_changed = true;
                while (is_changed) {
                    is_changed = false;
                    for (const Edge &edge : graph.edges)
                        if (reaches.count(edge.to) && reaches.insert(edge.from).second)
                            is_changed = true;
                }
                is_freed = !reaches.empty();
                for (unsigned stage : object.live)
                    is_freed &= reaches.count(stage) != 0;
                object.is_freed_on_every_path = is_freed;
                continue;
            }
            if (object.scope == Object::request)
                for (unsigned request : owners(o))
                    for (const End &end : ends[request]) {
                        has_end = true;
                        if (at[end.stage].test(o) && !end.dead.test(o))
                            is_freed = false;
                    }
            if (!has_end)
                for (unsigned i = 0; i < graph.edges.size(); i++) {
                    const Edge &edge = graph.edges[i];
                    bool is_carried = at[edge.from].test(o) && !dead[i].test(o);
                    bool is_made_again =
                        any_of(object.alloc, [&](const Site &site) { return is_contained(site.stages, edge.to); });
                    if (is_carried && (is_made_again || object.scope == Object::temporary))
                        is_freed = false;
                }
            // A stage without a next stage that does not free the request.
            for (unsigned i = 0; !has_end && i < at.size(); i++) {
                bool has_next = any_of(graph.edges, [&](const Edge &edge) { return edge.from == i; });
                bool frees = any_of(object.free, [&](const Site &site) { return is_contained(site.stages, i); });
                if (!has_next && at[i].test(o) && !frees)
                    is_freed = false;
            }
            object.is_freed_on_every_path = is_freed;
        }
    }

    const Calls &calls;
    const StageGraph &graph;
    Objects &objects;
    Effects effects;
    std::map<unsigned, std::set<const Function *>> functions_of_own;
    unsigned count;
    const Set &none, &every;
};

} // namespace

void find_lifetimes(const Calls &calls, const StageGraph &graph, Objects &objects) {
    Lifetimes(calls, graph, objects).run();
}

} // namespace stingy
