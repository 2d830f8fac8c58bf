#include "memwalk/fields.h"
#include "pch.h"

using namespace llvm;

namespace stingy {
namespace {

/// Returns the stages in which most requests spend their time: on a cycle, or on every path from a beginning to an
/// end.
std::set<unsigned> frequent_stages(const StageGraph &graph) {
    size_t count = graph.stages.size();
    std::vector<std::set<unsigned>> next(count);
    std::vector<bool> has_before(count);
    for (const Edge &edge : graph.edges) {
        next[edge.from].insert(edge.to);
        if (edge.from != edge.to)
            has_before[edge.to] = true;
    }
    auto reach = [&](unsigned from, unsigned without) {
        std::set<unsigned> seen;
        std::vector<unsigned> work{from};
        while (!work.empty()) {
            unsigned stage = work.back();
            work.pop_back();
            for (unsigned to : next[stage])
                if (to != without && seen.insert(to).second)
                    work.push_back(to);
        }
        return seen;
    };
    std::set<unsigned> frequent, ends, beginnings;
    for (unsigned i = 0; i < count; i++) {
        if (next[i].empty() || (next[i].size() == 1 && next[i].count(i)))
            ends.insert(i);
        if (!has_before[i])
            beginnings.insert(i);
    }
    for (unsigned i = 0; i < count; i++) {
        if (graph.stages[i].kind == "entry")
            continue;
        if (reach(i, ~0u).count(i))
            frequent.insert(i);
        bool is_avoided = false;
        for (unsigned begin : beginnings)
            if (begin != i) {
                auto others = reach(begin, i);
                for (unsigned end : ends)
                    is_avoided |= end != i && others.count(end);
            }
        if (!is_avoided && !(beginnings.count(i) && beginnings.size() > 1))
            frequent.insert(i);
    }
    return frequent;
}

/// Returns the cache lines of hot fields; for a buffer only the first one.
uint64_t lines_touched(const std::vector<FieldUse> &fields, uint64_t line) {
    std::set<uint64_t> lines;
    for (const FieldUse &use : fields) {
        if (use.temperature != FieldUse::hot)
            continue;
        uint64_t bytes = use.is_buffer() ? 1 : std::max<uint64_t>(1, use.field->bytes);
        for (uint64_t at = use.field->offset / line; at <= (use.field->offset + bytes - 1) / line; at++)
            lines.insert(at);
    }
    return lines.size();
}

uint64_t padded(uint64_t offset, uint64_t align) {
    return align ? (offset + align - 1) / align * align : offset;
}

void measure(Layout &layout, uint64_t line) {
    const Record &record = *layout.record;
    layout.lines = (record.bytes + line - 1) / line;
    std::vector<bool> used(record.bytes);
    std::vector<const Field *> hot, hot_buffers, cold;
    for (FieldUse &use : layout.fields) {
        const Field *field = use.field;
        for (uint64_t i = field->offset; i < field->offset + field->bytes && i < used.size(); i++)
            used[i] = true;
        if (use.temperature == FieldUse::hot && use.is_buffer())
            hot_buffers.push_back(field);
        else if (use.temperature == FieldUse::hot)
            layout.hot_bytes += field->bytes, hot.push_back(field);
        else
            cold.push_back(field);
    }
    layout.padding_bytes = std::count(used.begin(), used.end(), false);
    layout.hot_lines = lines_touched(layout.fields, line);
    auto by_alignment = [](const Field *a, const Field *b) {
        return std::make_tuple(b->align, b->bytes % std::max<uint64_t>(1, b->align) == 0) <
               std::make_tuple(a->align, a->bytes % std::max<uint64_t>(1, a->align) == 0);
    };
    std::stable_sort(hot.begin(), hot.end(), by_alignment);
    std::stable_sort(cold.begin(), cold.end(), by_alignment);
    uint64_t offset = 0;
    const Field *last_bits = nullptr;
    for (auto *group : {&hot, &hot_buffers, &cold}) {
        for (const Field *field : *group) {
            layout.packed_order.push_back(field->name);
            // Bit fields that share storage now must share it in the new layout.
            if (field->is_bits && last_bits && last_bits->offset + last_bits->bytes > field->offset &&
                last_bits->offset <= field->offset) {
                last_bits = field;
                continue;
            }
            last_bits = field->is_bits ? field : nullptr;
            offset = padded(offset, field->is_bits ? 1 : field->align) + field->bytes;
        }
        if (group == &hot)
            layout.hot_packed_lines =
                hot_buffers.empty() ? (offset + line - 1) / line : offset / line + hot_buffers.size();
    }
    layout.packed_bytes = std::min(padded(offset, record.align), record.bytes);
}

} // namespace

std::vector<Layout> find_layouts(const Program &program, const StageGraph &graph, const Objects &objects,
                                 uint64_t line_bytes) {
    std::set<std::string> wanted = objects.request_records;
    for (const Object &object : objects.all)
        if (object.scope == Object::request && !object.record.empty()) {
            bool is_staged = !object.live.empty();
            if (is_staged)
                wanted.insert(object.record);
        }
    // The stage of each function and of each line of a dispatcher.
    std::map<std::pair<std::string, std::string>, std::set<unsigned>> of_function;
    std::map<std::pair<std::string, unsigned>, std::set<unsigned>> of_line;
    for (unsigned i = 0; i < graph.stages.size(); i++) {
        for (const Function *function : graph.stages[i].functions)
            of_function[{place_of(*function).file, source_name(*function)}].insert(i);
        for (const BasicBlock *block : graph.stages[i].blocks)
            for (const Instruction &instruction : *block)
                if (Place place = place_of(instruction); place.line)
                    of_line[{place.file, place.line}].insert(i);
    }
    std::set<unsigned> frequent = frequent_stages(graph);
    std::vector<Layout> layouts;
    for (const std::string &name : wanted) {
        auto record = program.facts.records.find(name);
        if (record == program.facts.records.end() || record->second.is_union || record->second.bytes == 0)
            continue;
        Layout layout;
        layout.record = &record->second;
        std::map<std::string, unsigned> number;
        for (const Field &field : record->second.fields) {
            number[field.name] = layout.fields.size();
            layout.fields.push_back({&field, {}, {}, FieldUse::unused});
        }
        layouts.push_back(std::move(layout));
    }
    for (const Access &access : program.facts.accesses) {
        auto layout = std::find_if(layouts.begin(), layouts.end(),
                                   [&](const Layout &l) { return l.record->name == access.record; });
        if (layout == layouts.end())
            continue;
        std::set<unsigned> stages;
        if (auto found = of_function.find({access.file, access.function}); found != of_function.end())
            stages = found->second;
        if (auto found = of_line.find({access.file, access.line}); found != of_line.end())
            stages.insert(found->second.begin(), found->second.end());
        for (FieldUse &use : layout->fields) {
            StringRef name = use.field->name;
            bool is_same = name == access.field || StringRef(access.field).starts_with((name + ".").str()) ||
                           name.starts_with(access.field + ".");
            if (name == "(union)")
                is_same |= !layout->record->find(access.field) && StringRef(access.field).find('.') == StringRef::npos;
            if (!is_same)
                continue;
            if (access.is_read)
                use.reads.insert(stages.begin(), stages.end());
            if (access.is_write)
                use.writes.insert(stages.begin(), stages.end());
        }
    }
    for (Layout &layout : layouts) {
        for (FieldUse &use : layout.fields) {
            bool is_hot = false;
            for (auto *list : {&use.reads, &use.writes})
                for (unsigned stage : *list)
                    is_hot |= frequent.count(stage) != 0;
            std::set<unsigned> touching;
            for (auto *list : {&use.reads, &use.writes})
                for (unsigned stage : *list)
                    if (graph.stages[stage].kind != "entry")
                        touching.insert(stage);
            is_hot |= touching.size() >= 2;
            bool is_used = !use.reads.empty() || !use.writes.empty();
            use.temperature = !is_used                        ? FieldUse::unused
                              : is_hot && !use.field->is_cold ? FieldUse::hot
                                                              : FieldUse::cold;
        }
        measure(layout, line_bytes);
    }
    return layouts;
}

} // namespace stingy
