// Fields of request structures: the stages that use them, the cost of padding, and the saving if the hot ones were
// adjacent.
#pragma once
#include "memwalk/objects.h"

namespace stingy {

struct FieldUse {
    const Field *field;
    std::set<unsigned> reads, writes;
    enum Temperature { hot, cold, unused } temperature = unused;
    /// Whether it is too large to be used completely each time.
    bool is_buffer() const { return field->bytes >= 1024; }
};

struct Layout {
    const Record *record;
    std::vector<FieldUse> fields;
    uint64_t lines = 0, padding_bytes = 0, packed_bytes = 0, hot_bytes = 0, hot_lines = 0, hot_packed_lines = 0;
    std::vector<std::string> packed_order;
};

/// Computes layouts of request structures and of the structures that requests own. A field is hot if a stage on a
/// cycle of the graph or on every path from a beginning to an end uses it, or two stages do; beginnings do not count.
/// Other fields, and annotated ones, are cold. One line of a hot buffer counts as hot.
std::vector<Layout> find_layouts(const Program &program, const StageGraph &graph, const Objects &objects,
                                 uint64_t line_bytes);

} // namespace stingy
