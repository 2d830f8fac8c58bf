// Writes the map and the room functions as C.
#include "stingygen.h"

#include <algorithm>
#include <sstream>

namespace {

constexpr const char *ORIGIN = "/* Made by stingygen; do not edit. */\n";

std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (unsigned char c : text) {
        if (c == '"' || c == '\\')
            out += '\\', out += (char)c;
        else if (c >= ' ' && c < 127)
            out += (char)c;
        else
            out += '?';
    }
    return out + "\"";
}

size_t object_number(const Program &program, const std::string &id) {
    for (size_t i = 0; i < program.objects.size(); i++)
        if (program.objects[i].id == id)
            return i;
    throw Refusal("there is no object " + id);
}

// Computes the slots of each region that one more request at this stage takes.
std::map<size_t, uint32_t> needs(const Program &program, const Layout &layout, const Stage &stage) {
    std::map<size_t, uint32_t> out;
    bool is_admission = lets_in(program, stage);
    // An admitted request must find its slots at every later stage, too, except those of objects that few requests
    // need.
    for (size_t r = 0; is_admission && r < layout.regions.size(); r++)
        if (!layout.regions[r].is_scarce)
            out[r] = layout.regions[r].per_request;
    for (const std::string &id : stage.allocates) {
        size_t object = object_number(program, id);
        uint32_t &need = out[layout.region_of[object]];
        need = std::max(need, program.objects[object].per_request);
    }
    return out;
}

void emit_objects(std::ostringstream &out, const Program &program, const Layout &layout) {
    out << "static const struct stingy_object objects[] = {\n";
    for (size_t i = 0; i < program.objects.size(); i++) {
        const Object &object = program.objects[i];
        out << "\t[STINGY_OBJ_" << object.id << "] = { .name = " << quoted(object.id)
            << ", .object_bytes = " << object.bytes << ", .region = " << layout.region_of[i] << " }, /* size from "
            << object.bytes_from << " */\n";
    }
    out << "};\n\n";
}

void emit_regions(std::ostringstream &out, const Layout &layout) {
    out << "static const struct stingy_region regions[] = {\n";
    for (const Region &region : layout.regions)
        out << "\t{ .name = " << quoted(region.name) << ", .offset_bytes = " << region.offset_bytes
            << ", .slot_bytes = " << region.slot_bytes << ", .slots = " << region.slots << " },\n";
    out << "};\n\n";
}

void emit_room(std::ostringstream &out, const Program &program, const Layout &layout) {
    out << "static inline uint32_t least(uint32_t a, uint32_t b)\n{\n\treturn a < b ? a : b;\n}\n\n"
           "uint32_t stingy_room(unsigned stage)\n{\n\tuint32_t room = UINT32_MAX;\n\tswitch (stage) {\n";
    for (const Stage &stage : program.stages) {
        auto need = needs(program, layout, stage);
        if (need.empty())
            continue;
        out << "\tcase STINGY_STAGE_" << stage_word(stage) << ":\n";
        for (const auto &[region, slots] : need) {
            out << "\t\troom = least(room, stingy_free_slots(" << region << ")";
            if (slots > 1)
                out << " / " << slots;
            out << ");\n";
        }
        out << "\t\tbreak;\n";
    }
    out << "\tdefault:\n\t\tbreak; /* takes no slot */\n\t}\n\treturn room;\n}\n\n";
}

void emit_stages(std::ostringstream &out, const Program &program) {
    for (const Stage &stage : program.stages) {
        out << "static const uint16_t allocates_" << stage_word(stage) << "[] = { ";
        for (const std::string &id : stage.allocates)
            for (uint32_t n = 0; n < program.objects[object_number(program, id)].per_request; n++)
                out << "STINGY_OBJ_" << id << ", ";
        out << "STINGY_ANY };\n";
    }
    out << "\nconst struct stingy_gen_stage stingy_gen_stages[STINGY_STAGES] = {\n";
    for (const Stage &stage : program.stages)
        out << "\t[STINGY_STAGE_" << stage_word(stage) << "] = { " << quoted(stage.name) << ", allocates_"
            << stage_word(stage) << ", " << (lets_in(program, stage) ? "true" : "false") << " },\n";
    out << "};\n\n";
}

} // namespace

bool lets_in(const Program &program, const Stage &stage) {
    return std::any_of(stage.allocates.begin(), stage.allocates.end(),
                       [&](const std::string &id) { return program.objects[object_number(program, id)].is_request; });
}

std::string stage_word(const Stage &stage) {
    std::string out;
    for (unsigned char c : stage.name)
        out += c < 128 && isalnum(c) ? (char)c : '_';
    return out;
}

std::string emit_header(const Program &program, const Layout &layout) {
    std::ostringstream out;
    out << ORIGIN << "#ifndef STINGY_GEN_H\n#define STINGY_GEN_H\n\n#include <stingy/runtime.h>\n\n"
        << "/* " << layout.requests << " requests of " << layout.request_bytes << " bytes in a cache slab of "
        << layout.cache_bytes << " bytes. */\nenum { STINGY_REQUESTS = " << layout.requests << " };\n\n"
        << "enum stingy_gen_object {\n";
    for (size_t i = 0; i < program.objects.size(); i++)
        out << "\tSTINGY_OBJ_" << program.objects[i].id << (i == 0 ? " = 0,\n" : ",\n");
    out << "\tSTINGY_OBJECTS\n};\n\n/* In order of treatment. */\nenum stingy_gen_stage_number {\n";
    for (size_t i = 0; i < program.stages.size(); i++)
        out << "\tSTINGY_STAGE_" << stage_word(program.stages[i]) << (i == 0 ? " = 0,\n" : ",\n");
    out << "\tSTINGY_STAGES\n};\n\n"
           "struct stingy_gen_stage {\n\tconst char *name;\n\tconst uint16_t *allocates; /* objects, as often as a "
           "request holds them; STINGY_ANY ends them */\n"
           "\tbool lets_requests_in;\n};\nextern const struct stingy_gen_stage stingy_gen_stages[STINGY_STAGES];\n"
           "extern const struct stingy_map stingy_gen_map;\n\n"
           "/* How many more requests this thread can let through the stage without a spill; UINT32_MAX where it takes "
           "no slot. At a\n"
           " * stage that lets requests in: through all their stages, unless one is evicted. */\nuint32_t "
           "stingy_room(unsigned "
           "stage);\n\n#endif\n";
    return out.str();
}

std::string emit_source(const Program &program, const Layout &layout, const Options &options) {
    std::ostringstream out;
    out << ORIGIN << "#include \"stingy_gen.h\"\n\n#include <stdio.h>\n\n";
    emit_objects(out, program, layout);
    emit_regions(out, layout);
    out << "const struct stingy_map stingy_gen_map = {\n\t.version = STINGY_MAP_VERSION,\n\t.stack_bytes = "
        << layout.stack_bytes << ",\n\t.globals_bytes = " << layout.globals_bytes
        << ",\n\t.low_bytes = " << options.low_bytes << ",\n\t.cache_bytes = " << layout.cache_bytes
        << ",\n\t.high_bytes = " << options.high_bytes
        << ",\n\t.object_count = STINGY_OBJECTS,\n\t.region_count = " << layout.regions.size()
        << ",\n\t.objects = objects,\n\t.regions = regions,\n};\n\n";
    emit_room(out, program, layout);
    emit_stages(out, program);
    out << "/* Before main, so that no allocation of the server comes earlier. */\n"
           "__attribute__((constructor)) static void begin(void)\n{\n\tint error = stingy_init(&stingy_gen_map, "
           "NULL);\n\tif (error)\n"
           "\t\tfprintf(stderr, \"stingy: the memory map cannot be used (%d); malloc is\\n\", error);\n";
    out << "}\n";
    return out.str();
}
