// Chooses the globals that lie together in one section, and writes the linker script that puts them there.
#include "stingygen.h"

#include <algorithm>
#include <sstream>
#include <tuple>

namespace {

constexpr uint64_t PAGE = 4096, HUGE_PAGE = 2 << 20;

// Compilers align large variables more than their type needs.
uint64_t align_of(const Global &global) {
    return std::max<uint64_t>(global.align, global.bytes >= LINE ? LINE : global.bytes >= 32 ? 32 : 1);
}

// First those that are only read; then, from a new line on, those that are written: a write invalidates its line for
// the other threads, which must not lose what they only read. In each part large alignments first, to waste little
// space.
std::vector<Global> in_order(std::vector<Global> globals) {
    std::stable_sort(globals.begin(), globals.end(), [](const Global &a, const Global &b) {
        return std::make_tuple(a.is_written, -(int64_t)align_of(a), -(int64_t)a.bytes, a.name) <
               std::make_tuple(b.is_written, -(int64_t)align_of(b), -(int64_t)b.bytes, b.name);
    });
    return globals;
}

uint64_t section_bytes(const std::vector<Global> &globals) {
    uint64_t at = 0;
    bool is_written = false;
    for (const Global &global : in_order(globals)) {
        if (global.is_written && !is_written)
            at = round_up(at, LINE);
        is_written = global.is_written;
        at = round_up(at, align_of(global)) + global.bytes;
    }
    return round_up(at, LINE);
}

// The sections in which compilers put a variable with -fdata-sections. A variable that is static in a function has a
// number after its name (GCC), or its function's name before it (Clang).
void emit_patterns(std::ostringstream &out, const std::string &name) {
    size_t dot = name.find('.');
    std::string last = dot == std::string::npos ? name : name.substr(dot + 1);
    for (const char *kind :
         {"data", "bss", "rodata", "data.rel", "data.rel.local", "data.rel.ro", "data.rel.ro.local"}) {
        std::string begin = std::string(" .") + kind + ".";
        if (dot == std::string::npos)
            out << begin << last;
        else
            out << begin << name;
        out << begin << last << ".[0-9]*";
    }
}

} // namespace

std::vector<Global> choose_globals(const Program &program, Options &options, std::vector<Global> &left) {
    std::vector<Global> hot, chosen;
    for (const std::string &name : options.without_globals)
        if (std::none_of(program.globals.begin(), program.globals.end(),
                         [&](const Global &global) { return global.name == name; }))
            throw Refusal("--without-global " + name + ": there is no such global in " + options.input);
    if (!options.has_globals)
        return chosen;
    for (const Global &global : program.globals)
        if (global.bytes > 0 && global.stages > 0 && !options.without_globals.count(global.name))
            hot.push_back(global);
    std::stable_sort(hot.begin(), hot.end(), [](const Global &a, const Global &b) {
        return std::make_tuple(-(int64_t)a.stages, a.bytes, a.name) <
               std::make_tuple(-(int64_t)b.stages, b.bytes, b.name);
    });
    if (options.is_globals_auto)
        options.globals_bytes = section_bytes(hot);
    for (const Global &global : hot) {
        chosen.push_back(global);
        if (section_bytes(chosen) > options.globals_bytes) {
            chosen.pop_back();
            left.push_back(global);
        }
    }
    return in_order(chosen);
}

std::string emit_linker_script(const std::vector<Global> &globals, const Options &options) {
    std::ostringstream out;
    out << "/* Made by stingygen; do not edit.\n"
           " *\n"
           " * Globals that the stages touch, in one section. Compile the server with -fdata-sections, link it with\n"
           " *     -Wl,-T,stingy_globals.ld\n"
           " * (GNU ld: it adds to the linker's own script.) Nothing else lies on the huge pages around the section, "
           "which the\n"
           " * runtime makes of it: that takes addresses, and one huge page, but no bytes of the file. */\n"
           "SECTIONS\n{\n\t. = ALIGN("
        << PAGE << ") + " << HUGE_PAGE << ";\n\t.stingy_globals : ALIGN(" << PAGE
        << ")\n\t{\n\t\tstingy_globals_begin = .;\n";
    std::set<std::string> seen;
    bool is_written = false;
    for (const Global &global : globals) {
        if (global.is_written && !is_written)
            out << "\t\t. = ALIGN(" << LINE << "); /* written */\n";
        is_written = global.is_written;
        if (!seen.insert(global.name).second)
            continue; // another file's of the same name
        out << "\t\t*(";
        std::ostringstream patterns;
        emit_patterns(patterns, global.name);
        out << patterns.str().substr(1) << ")\n";
    }
    out << "\t\tstingy_globals_end = .;\n\t}\n\t. = ALIGN(" << PAGE << ") + " << HUGE_PAGE
        << ";\n}\nINSERT AFTER .data;\n"
        << "ASSERT(SIZEOF(.stingy_globals) > 0, \"stingy_globals.ld: the program has none of these globals in a "
           "section of its own; compile it with -fdata-sections\")\n"
        << "ASSERT(SIZEOF(.stingy_globals) <= " << options.globals_bytes
        << ", \"stingy_globals.ld: the globals take more than the " << options.globals_bytes
        << " bytes that the map keeps free; give stingygen --globals SIZE, or --without-global NAME\")\n";
    return out.str();
}
