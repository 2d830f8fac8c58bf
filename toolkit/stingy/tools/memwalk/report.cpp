#include "input/paths.h"
#include "memwalk/result.h"
#include "pch.h"

using namespace llvm;

namespace stingy {
namespace {

std::string quoted(StringRef text) {
    std::string out = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\')
            out += '\\';
        out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
    }
    return out + "\"";
}

/// Formats columns as wide as their widest cell; the first has text, the others have numbers.
class Table {
  public:
    Table(std::vector<std::string> head, unsigned texts = 1) : texts(texts) { rows.push_back(std::move(head)); }
    void row(std::vector<std::string> cells) { rows.push_back(std::move(cells)); }
    void print(raw_ostream &out) const {
        std::vector<size_t> width;
        for (const auto &cells : rows)
            for (size_t i = 0; i < cells.size(); i++) {
                if (width.size() <= i)
                    width.push_back(0);
                width[i] = std::max(width[i], cells[i].size());
            }
        for (const auto &cells : rows) {
            std::string line = "  ";
            for (size_t i = 0; i < cells.size(); i++) {
                std::string gap(width[i] - cells[i].size(), ' ');
                line += i < texts || i + 1 == cells.size() ? cells[i] + gap + "  " : gap + cells[i] + "  ";
            }
            out << StringRef(line).rtrim() << '\n';
        }
    }

  private:
    std::vector<std::vector<std::string>> rows;
    unsigned texts;
};

std::string size_text(const Size &size) {
    switch (size.kind) {
    case Size::constant:
        return std::to_string(*size.bytes) + " B";
    case Size::n_constant:
        return "n x " + std::to_string(size.unit) + " B (" + size.reason + ")";
    case Size::bounded:
        return std::to_string(size.least) + " to " + std::to_string(*size.most) + " B (" + size.reason + ")";
    case Size::variable:
        break;
    }
    std::string text = "variable (" + size.reason + ")";
    if (size.bytes)
        text += ", " + std::to_string(*size.bytes) + " B by configuration";
    return text;
}

std::string range(const State &state, uint64_t least, uint64_t most) {
    return std::to_string(least) + (!state.is_bound ? "+" : least == most ? "" : " to " + std::to_string(most));
}

} // namespace

void write_dot(const Result &r, raw_ostream &out) {
    out << "digraph stages {\n  rankdir=TB;\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n  edge "
           "[fontname=\"sans-serif\", fontsize=8];\n";
    for (unsigned i : r.order) {
        const Stage &s = r.graph->stages[i];
        // nf and sc: functions and stack, as in Figure 4 of the paper; st: state of a request.
        std::string label = s.name + " [nf=" + std::to_string(s.functions.size()) +
                            ", sc=" + std::to_string(r.stack[i].bytes) + (r.stack[i].why_not.empty() ? "" : "+") +
                            "]\\nst=" + range(r.states[i], r.states[i].least_bytes, r.states[i].bytes) + " B, " +
                            range(r.states[i], r.states[i].least_lines, r.states[i].lines) + " lines";
        std::string text = quoted(label);
        for (size_t at; (at = text.find("\\\\n")) != std::string::npos;)
            text.replace(at, 3, "\\n");
        out << "  " << quoted(s.name) << " [label=" << text << (s.kind == "entry" ? ", style=rounded" : "") << "];\n";
    }
    for (unsigned from : r.order)
        for (unsigned to : r.order)
            for (const Edge &edge : r.graph->edges)
                if (edge.from == from && edge.to == to)
                    out << "  " << quoted(r.graph->stages[from].name) << " -> " << quoted(r.graph->stages[to].name)
                        << " [label=" << quoted(event_text(edge))
                        << (edge.places.empty() && edge.at ? edge.calls.empty() ? ", style=dotted" : ", style=dashed"
                                                           : "")
                        << "];\n";
    out << "}\n";
}

void write_report(const Result &r, const std::vector<Cache> &caches, raw_ostream &out) {
    const StageGraph &graph = *r.graph;
    out << "Stages: " << graph.stages.size();
    for (const StateCell &state : graph.states)
        out << (&state == &graph.states[0] ? ", from " : ", ") << state.type << "." << state.field;
    if (graph.scheduler)
        out << ", run by " << source_name(*graph.scheduler);
    out << ". Read: " << r.program->units.size() << " files, " << r.functions << " functions.\n";
    for (const Pointers::Warning &doubt : r.doubts)
        if (doubt.kind == "state_guessed")
            out << "  Doubt: " << doubt.what << ". Remedy: " << doubt.remedy << "\n";
    for (unsigned i : r.order) {
        out << "  " << graph.stages[i].name << " ->";
        bool is_any = false;
        for (unsigned to : r.order)
            for (const Edge &edge : graph.edges)
                if (edge.from == i && edge.to == to)
                    out << (is_any ? ", " : " ") << graph.stages[to].name, is_any = true;
        out << (is_any ? "\n" : " (end)\n");
    }

    out << "\nState of one connection at each stage (+: at least, as an object has no known size or number)\n";
    std::vector<std::string> head = {"stage", "bytes", "lines"};
    for (const Cache &cache : caches)
        head.push_back("fit in " + cache.name);
    head.push_back("stack"), head.push_back("functions");
    Table table(head);
    bool has_stack_doubt = false, has_range = false;
    for (unsigned i : r.order) {
        const State &state = r.states[i];
        has_range |= state.is_bound && state.least_bytes != state.bytes;
        std::vector<std::string> cells = {graph.stages[i].name, range(state, state.least_bytes, state.bytes),
                                          range(state, state.least_lines, state.lines)};
        for (const Cache &cache : caches) {
            auto fit = [&](uint64_t lines) {
                return lines ? std::to_string(cache.bytes / (lines * r.line_bytes)) : "all";
            };
            bool is_range = state.is_bound && state.least_lines != state.lines;
            cells.push_back(!cache.bytes ? "-"
                                         : (state.is_bound || !state.least_lines ? "" : "<= ") +
                                               (is_range ? fit(state.lines) + " to " : "") + fit(state.least_lines));
        }
        has_stack_doubt |= !r.stack[i].why_not.empty();
        cells.push_back(std::to_string(r.stack[i].bytes) + (r.stack[i].why_not.empty() ? "" : "+"));
        cells.push_back(std::to_string(graph.stages[i].functions.size()));
        table.row(cells);
    }
    table.print(out);
    if (has_range)
        out << "  From the smallest size of each object that has bounds to its largest; say which is usual: [[object]] "
               "typical_bytes.\n";
    out << "  Caches:";
    for (const Cache &cache : caches)
        out << ' ' << cache.name << ' '
            << (cache.bytes ? std::to_string(cache.bytes / 1024) + " KiB" : "not measured: " + cache.why_not) << ';';
    out << " lines of " << r.line_bytes << " B, connections counted as if nothing else used the cache.\n";
    out << "  Stack: " << r.frames << "; functions from outside count " << r.config->external_bytes << " B each.\n";
    if (has_stack_doubt) {
        std::set<std::string> reasons;
        for (unsigned i : r.order)
            reasons.insert(r.stack[i].why_not.begin(), r.stack[i].why_not.end());
        unsigned shown = 0;
        for (const std::string &reason : reasons)
            if (shown++ < 8)
                out << "  No bound: " << reason << "\n";
        if (reasons.size() > 8)
            out << "  No bound: " << reasons.size() - 8 << " more reasons (in the JSON)\n";
    }

    out << "\nObjects of a request\n";
    if (r.request_objects.empty())
        out << "  none is allocated or freed by a stage\n";
    for (const Object *o : r.request_objects) {
        out << "  " << o->id << ": " << size_text(o->size) << ", "
            << (o->per_request ? std::to_string(*o->per_request) + " a request" : "any number a request")
            << (o->is_freed_on_every_path             ? ""
                : o->free.empty() && o->pools.empty() ? ", never freed"
                                                      : ", not freed on every path")
            << "\n    allocated ";
        unsigned shown = 0;
        for (const auto *list : {&o->alloc, &o->realloc})
            for (const Site &site : *list)
                if (shown++ < 4)
                    out << (shown > 1 ? ", " : "") << shown_path(r.program->root, site.place.file) << ":"
                        << site.place.line << " " << site.allocator;
        if (shown > 4)
            out << " and " << shown - 4 << " more";
        shown = 0;
        for (const Site &site : o->free)
            if (shown++ < 4)
                out << (shown > 1 ? ", " : "; freed ") << shown_path(r.program->root, site.place.file) << ":"
                    << site.place.line << (site.is_indirect ? " through a pointer" : "");
        if (shown > 4)
            out << " and " << shown - 4 << " more";
        for (unsigned pool : o->pools)
            out << (pool == *o->pools.begin() ? "; in the pool " : ", ") << r.objects->all[pool].id;
        out << "\n    live in";
        for (unsigned i : r.order)
            if (o->live.count(i))
                out << ' ' << graph.stages[i].name;
        out << '\n';
    }
    unsigned temporaries = count_if(r.shared_objects, [](const Object *o) { return o->is_temporary; });
    if (temporaries)
        out << "  " << temporaries
            << " more objects are made and freed within one call; no request waits with them, so they are not counted "
               "(shared_objects in the JSON)\n";
    if (r.shared_objects.size() > temporaries)
        out << "  " << r.shared_objects.size() - temporaries
            << " more objects that stages allocate or free are held by globals only; they are not counted "
               "(shared_objects in the JSON)\n";

    out << "\nFields\n";
    for (const Layout &l : r.layouts) {
        out << "  " << l.record->name << ": " << l.record->bytes << " B in " << l.lines << " lines; " << l.padding_bytes
            << " B of padding, packed " << l.packed_bytes << " B\n";
        out << "    hot: " << l.hot_bytes << " B in " << l.hot_lines << " lines, packed together " << l.hot_packed_lines
            << "\n";
        for (const FieldUse &use : l.fields)
            if (use.temperature == FieldUse::hot && use.is_buffer())
                out << "    of " << use.field->name << " (" << use.field->bytes
                    << " B) one line is counted as hot: which part a stage uses is not known\n";
        for (auto [temperature, word] :
             {std::make_pair(FieldUse::cold, "cold"), std::make_pair(FieldUse::unused, "no stage touches")}) {
            std::string names;
            uint64_t bytes = 0;
            for (const FieldUse &use : l.fields)
                if (use.temperature == temperature) {
                    if (names.size() < 300)
                        names += (names.empty() ? "" : ", ") + use.field->name;
                    else if (!StringRef(names).ends_with("..."))
                        names += ", ...";
                    bytes += use.field->bytes;
                }
            if (!names.empty())
                out << "    " << word << ": " << names << " (" << bytes << " B)\n";
        }
    }

    const Pointers::Counts &c = r.pointers->counts();
    out << "\nCalls through pointers: " << c.total << "; by field " << c.by_field << ", by argument or variable "
        << c.by_argument << ", by type alone " << c.by_type << ", unresolved " << c.unresolved << "; at most "
        << c.max_targets << " targets\n";
    if (c.narrowed)
        out << "  At " << c.narrowed
            << " of them functions of another type than the call's were left out (--sound keeps them)\n";
    for (auto [list, word] : {std::make_pair(&r.unsound, "Unsound"), std::make_pair(&r.doubts, "Doubt")}) {
        unsigned shown = 0;
        for (const Pointers::Warning &note : *list) {
            if (note.kind == "state_guessed" || shown++ >= 12)
                continue;
            out << word << ": ";
            if (note.at) {
                Place place = place_of(*note.at);
                out << shown_path(r.program->root, place.file) << ":" << place.line << ": ";
            }
            out << note.what << ". Remedy: " << note.remedy << "\n";
        }
        if (shown > 12)
            out << word << ": " << shown - 12 << " more (in the JSON)\n";
    }
}

} // namespace stingy
