#include "input/paths.h"
#include "memwalk/result.h"
#include "pch.h"

using namespace llvm;

namespace stingy {
namespace {

/// Converts text from the source, which may be in any encoding.
std::string utf8(const std::string &text) {
    return json::isUTF8(text) ? text : json::fixUTF8(text);
}

class Writer {
  public:
    Writer(const Result &result, raw_ostream &out) : r(result), root(result.program->root), j(out, 1) {}

    void run() {
        j.object([&] {
            j.attribute("memwalk", 1);
            j.attributeObject("program", [&] {
                number("units", r.program->units.size());
                number("functions", r.functions);
                number("cache_line_bytes", r.line_bytes);
                number("pointer_bytes", r.program->module->getDataLayout().getPointerSize());
                text("frames", r.frames);
                number("external_stack_bytes", r.config->external_bytes);
            });
            if (r.graph->scheduler)
                text("scheduler", source_name(*r.graph->scheduler));
            else
                j.attribute("scheduler", nullptr);
            auto state = [&](const StateCell &cell) { text("type", cell.type), text("field", cell.field); };
            if (r.graph->states.empty())
                j.attribute("state", nullptr);
            else
                j.attributeObject("state", [&] { state(r.graph->states[0]); });
            if (r.graph->states.size() > 1)
                j.attributeArray("more_states", [&] {
                    for (size_t i = 1; i < r.graph->states.size(); i++)
                        j.object([&] { state(r.graph->states[i]); });
                });
            requests();
            stages();
            edges();
            j.attributeArray("objects", [&] {
                for (const Object *o : r.request_objects)
                    object(*o);
            });
            j.attributeArray("shared_objects", [&] {
                for (const Object *o : r.shared_objects)
                    object(*o);
            });
            if (!r.objects->unknown_freed.empty())
                sites("unknown_freed", r.objects->unknown_freed, false);
            if (!r.objects->unknown_resized.empty())
                sites("unknown_resized", r.objects->unknown_resized, false);
            wrappers();
            layouts();
            globals();
            const Pointers::Counts &c = r.pointers->counts();
            j.attributeObject("indirect_calls", [&] {
                number("total", c.total), number("by_field", c.by_field), number("by_argument", c.by_argument),
                    number("by_type", c.by_type), number("unresolved", c.unresolved),
                    number("max_targets", c.max_targets), number("of_other_type", c.narrowed);
            });
            notes("unsound", r.unsound);
            notes("doubts", r.doubts);
        });
    }

  private:
    void text(StringRef key, const std::string &value) { j.attribute(key, utf8(value)); }
    void number(StringRef key, uint64_t value) { j.attribute(key, int64_t(value)); }
    void maybe(StringRef key, const std::optional<uint64_t> &value) {
        if (value)
            number(key, *value);
        else
            j.attribute(key, nullptr);
    }
    void place(StringRef key, const Place &at, const std::string &function = "") {
        j.attributeObject(key, [&] {
            text("file", shown_path(root, at.file));
            number("line", at.line);
            if (!function.empty())
                text("function", function);
        });
    }
    const std::string &stage_name(unsigned i) const { return r.graph->stages[i].name; }
    void names(StringRef key, const std::set<unsigned> &stages) {
        j.attributeArray(key, [&] {
            for (unsigned i : r.order)
                if (stages.count(i))
                    j.value(utf8(stage_name(i)));
        });
    }
    void list(StringRef key, const std::vector<std::string> &values) {
        j.attributeArray(key, [&] {
            for (const std::string &value : values)
                j.value(utf8(value));
        });
    }

    void requests() {
        j.attributeArray("requests", [&] {
            for (const std::string &name : r.objects->request_records) {
                auto record = r.program->facts.records.find(name);
                if (record == r.program->facts.records.end())
                    continue;
                const Object *object = nullptr;
                for (const Object *o : r.request_objects)
                    if (o->record == name && o->is_request && !object)
                        object = o;
                j.object([&] {
                    text("type", name);
                    if (object)
                        text("object", object->id);
                    else
                        j.attribute("object", nullptr);
                    place("at", record->second.place);
                });
            }
        });
    }

    void stages() {
        std::vector<bool> has_before(r.graph->stages.size());
        for (const Edge &edge : r.graph->edges)
            if (edge.from != edge.to)
                has_before[edge.to] = true;
        j.attributeArray("stages", [&] {
            for (unsigned i : r.order) {
                const Stage &s = r.graph->stages[i];
                j.object([&] {
                    text("name", s.name), text("kind", s.kind);
                    if (s.value)
                        j.attribute("value", *s.value);
                    const Function *entry = s.function ? s.function : s.dispatcher;
                    text("entry", entry ? source_name(*entry) : "");
                    j.attribute("is_entry", !has_before[i]);
                    place("at", s.place);
                    number("functions", s.functions.size());
                    j.attributeObject("stack", [&] {
                        number("bytes", r.stack[i].bytes);
                        j.attribute("is_bound", r.stack[i].why_not.empty());
                        list("why_not", r.stack[i].why_not);
                        list("deepest", r.stack[i].deepest);
                    });
                    auto objects = [&](StringRef key, auto has) {
                        j.attributeArray(key, [&] {
                            for (const Object *o : r.request_objects)
                                if (has(*o))
                                    j.value(o->id);
                        });
                    };
                    auto in = [&](const std::vector<Site> &sites) {
                        return any_of(sites, [&](const Site &site) { return is_contained(site.stages, i); });
                    };
                    objects("allocates", [&](const Object &o) { return in(o.alloc) || in(o.realloc); });
                    objects("frees", [&](const Object &o) { return in(o.free); });
                    objects("live", [&](const Object &o) { return o.live.count(i) != 0; });
                    j.attributeObject("state", [&] {
                        number("bytes", r.states[i].bytes), number("lines", r.states[i].lines);
                        number("least_bytes", r.states[i].least_bytes), number("least_lines", r.states[i].least_lines);
                        j.attribute("is_bound", r.states[i].is_bound);
                    });
                    uint64_t bytes = 0;
                    j.attributeArray("globals", [&] {
                        for (const Global &global : r.globals)
                            if (global.stages.count(i))
                                j.value(utf8(global.name)), bytes += global.bytes;
                    });
                    number("globals_bytes", bytes);
                });
            }
        });
    }

    void edges() {
        std::map<unsigned, unsigned> rank;
        for (unsigned i = 0; i < r.order.size(); i++)
            rank[r.order[i]] = i;
        std::vector<const Edge *> sorted;
        for (const Edge &edge : r.graph->edges)
            sorted.push_back(&edge);
        std::stable_sort(sorted.begin(), sorted.end(), [&](const Edge *a, const Edge *b) {
            return std::make_pair(rank[a->from], rank[a->to]) < std::make_pair(rank[b->from], rank[b->to]);
        });
        j.attributeArray("edges", [&] {
            for (const Edge *edge : sorted)
                j.object([&] {
                    text("from", stage_name(edge->from)), text("to", stage_name(edge->to)),
                        text("event", event_text(*edge));
                    if (edge->at)
                        place("at", place_of(*edge->at), source_name(*edge->at->getFunction()));
                    else
                        place("at", r.graph->stages[edge->to].place);
                    if (!edge->calls.empty() || !edge->returns.empty())
                        j.attributeArray("by", [&] {
                            if (!edge->places.empty())
                                j.value("queue");
                            if (!edge->calls.empty())
                                j.value("call");
                            if (!edge->returns.empty())
                                j.value("return");
                        });
                });
        });
    }

    void sites(StringRef key, const std::vector<Site> &all, bool is_different) {
        j.attributeArray(key, [&] {
            for (const Site &site : all)
                if (!site.is_indirect)
                    j.object([&] {
                        text("file", shown_path(root, site.place.file)), number("line", site.place.line),
                            number("column", std::max(1u, site.column));
                        text("function", site.function), text("allocator", site.allocator);
                        names("stages", std::set<unsigned>(site.stages.begin(), site.stages.end()));
                        if (is_different)
                            text("size", site.size.kind == Size::constant
                                             ? std::to_string(*site.size.bytes) + " bytes"
                                             : class_name(site.size) + ": " + site.size.reason);
                    });
        });
    }

    void object(const Object &o) {
        j.object([&] {
            text("id", o.id), text("type", o.type.empty() ? "char" : o.type);
            j.attribute("is_request", o.is_request);
            if (o.is_temporary)
                j.attribute("is_temporary", true);
            maybe("per_request", o.per_request);
            number("align", o.align);
            j.attributeObject("size", [&] {
                text("class", class_name(o.size));
                maybe("bytes", o.size.bytes), maybe("max_bytes", o.size.most);
                if (o.size.kind == Size::bounded)
                    number("min_bytes", o.size.least);
                if (o.size.kind == Size::n_constant)
                    number("unit_bytes", o.size.unit);
                if (!o.size.reason.empty())
                    text("reason", o.size.reason);
                if (!o.size.from.empty())
                    text("bytes_from", o.size.from);
            });
            bool is_different = o.alloc.size() + o.realloc.size() > 1 && o.size.kind != Size::constant;
            sites("alloc", o.alloc, is_different), sites("realloc", o.realloc, is_different),
                sites("free", o.free, false);
            if (!o.maybe_freed.empty())
                sites("maybe_freed", o.maybe_freed, false);
            if (!o.maybe_resized.empty())
                sites("maybe_resized", o.maybe_resized, false);
            names("live", o.live);
            j.attribute("is_freed_on_every_path", o.is_freed_on_every_path);
            j.attributeArray("held_by", [&] {
                for (const Cell &cell : o.holders)
                    if (std::string name = field_name(r.program->facts, cell); !name.empty())
                        j.value(utf8(cell.record + "." + name));
            });
            if (!o.pools.empty())
                j.attributeArray("pools", [&] {
                    for (unsigned pool : o.pools)
                        j.value(r.objects->all[pool].id);
                });
            if (!o.hindrances.empty())
                j.attributeArray("not_rewritable", [&] {
                    for (const Hindrance &h : o.hindrances)
                        j.object([&] {
                            text("file", shown_path(root, h.place.file));
                            number("line", h.place.line), text("why", h.why);
                        });
                });
            if (!o.doubt.empty())
                text("doubt", o.doubt);
        });
    }

    /// Writes the functions of the program that allocate or free for their callers and that sites name.
    void wrappers() {
        std::set<std::string> used;
        for (const auto *objects : {&r.request_objects, &r.shared_objects})
            for (const Object *o : *objects)
                for (const auto *sites : {&o->alloc, &o->realloc, &o->free})
                    for (const Site &site : *sites)
                        used.insert(site.allocator);
        for (const auto *sites : {&r.objects->unknown_freed, &r.objects->unknown_resized})
            for (const Site &site : *sites)
                used.insert(site.allocator);
        std::vector<std::tuple<std::string, const Function *, const Allocator *, bool>> found;
        for (const Function &function : *r.program->module)
            for (bool is_free : {false, true})
                if (const Allocator *how =
                        is_free ? r.allocators->free_of(function) : r.allocators->malloc_of(function);
                    how && !how->within.empty() && used.count(source_name(function)))
                    found.push_back({source_name(function), &function, how, is_free});
        if (found.empty())
            return;
        std::stable_sort(found.begin(), found.end(),
                         [](const auto &a, const auto &b) { return std::get<0>(a) < std::get<0>(b); });
        j.attributeArray("wrappers", [&] {
            for (auto &[name, function, how, is_free] : found)
                j.object([&, name = name, function = function, how = how, is_free = is_free] {
                    text("function", name), place("at", place_of(*function)), text("calls", how->within);
                    for (auto [key, argument] :
                         {std::make_pair("size", how->size), std::make_pair("count", how->count),
                          std::make_pair("pointer", how->pointer), std::make_pair("through", how->through)})
                        if (argument >= 0)
                            number(key, argument);
                    if (!how->like.empty())
                        text("like", how->like);
                    if (!is_free)
                        j.attribute("zeroes", how->zeroes), j.attribute("dies", how->dies);
                    j.attribute("is_plain", how->is_plain);
                });
        });
    }

    void layouts() {
        j.attributeArray("layouts", [&] {
            for (const Layout &l : r.layouts)
                j.object([&] {
                    text("type", l.record->name);
                    number("bytes", l.record->bytes), number("align", l.record->align), number("lines", l.lines),
                        number("padding_bytes", l.padding_bytes), number("packed_bytes", l.packed_bytes);
                    list("packed_order", l.packed_order);
                    number("hot_bytes", l.hot_bytes), number("hot_lines", l.hot_lines),
                        number("hot_packed_lines", l.hot_packed_lines);
                    j.attributeArray("fields", [&] {
                        for (const FieldUse &use : l.fields)
                            j.object([&] {
                                text("name", use.field->name), text("type", use.field->type);
                                number("offset", use.field->offset), number("bytes", use.field->bytes);
                                names("reads", use.reads), names("writes", use.writes);
                                text("temperature", use.temperature == FieldUse::hot    ? "hot"
                                                    : use.temperature == FieldUse::cold ? "cold"
                                                                                        : "unused");
                            });
                    });
                });
        });
    }

    void globals() {
        j.attributeArray("globals", [&] {
            for (const Global &global : r.globals)
                j.object([&] {
                    text("name", global.name), number("bytes", global.bytes), number("align", global.align);
                    place("at", global.place);
                    j.attribute("is_written", global.is_written);
                    if (global.variable->isThreadLocal())
                        j.attribute("is_thread_local", true);
                    names("stages", global.stages);
                });
        });
    }

    void notes(StringRef key, const std::vector<Pointers::Warning> &all) {
        j.attributeArray(key, [&] {
            for (const Pointers::Warning &note : all)
                j.object([&] {
                    text("kind", note.kind);
                    if (note.at)
                        place("at", place_of(*note.at), source_name(*note.at->getFunction()));
                    else
                        j.attribute("at", nullptr);
                    text("what", note.what), text("remedy", note.remedy);
                    if (!note.objects.empty())
                        j.attributeArray("objects", [&] {
                            for (const std::string &object : note.objects)
                                j.value(utf8(object));
                        });
                });
        });
    }

    const Result &r;
    const std::string &root;
    json::OStream j;
};

} // namespace

void write_json(const Result &result, raw_ostream &out) {
    Writer(result, out).run();
    out << '\n';
}

} // namespace stingy
