// memwalk: stages of an event-driven server, and the memory of one request at each (Bhatia, Consel and Lawall 2006,
// section 4.2).
#include "input/annotations.h"
#include "memwalk/lifetimes.h"
#include "memwalk/result.h"
#include "pch.h"
#include <chrono>
#include <sys/resource.h>
#include <unistd.h>

using namespace llvm;
using namespace stingy;

static cl::OptionCategory category("memwalk");
static cl::opt<std::string> build("p", cl::desc("folder of compile_commands.json"), cl::value_desc("folder"),
                                  cl::cat(category));
static cl::opt<std::string>
    config_file("config", cl::desc("configuration file: stages, allocators, sizes (toolkit/stingy/README.md)"),
                cl::value_desc("stingy.toml"), cl::cat(category));
static cl::opt<std::string>
    main_file("program", cl::desc("if the build makes several programs: the one whose main is in this file"),
              cl::value_desc("file.c"), cl::cat(category));
static cl::opt<std::string> output("o", cl::desc("write JSON here (schema/memwalk.schema.json); - for standard output"),
                                   cl::value_desc("file"), cl::cat(category));
static cl::opt<std::string> dot("dot", cl::desc("write the stage call graph for Graphviz here"), cl::value_desc("file"),
                                cl::cat(category));
static cl::opt<std::string> svg("svg", cl::desc("draw the stage call graph here, by Graphviz's program dot"),
                                cl::value_desc("file"), cl::cat(category));
static cl::opt<bool> report("report", cl::desc("print the report (the default without -o, --dot and --svg)"),
                            cl::cat(category));
static cl::opt<bool>
    is_sound("sound",
             cl::desc("assume that a call through a pointer reaches every function of its type whose address is taken"),
             cl::cat(category));
static cl::opt<FrameSource>
    frame_source("frames", cl::desc("source of stack frame sizes"), cl::init(FrameSource::automatic),
                 cl::values(clEnumValN(FrameSource::automatic, "auto",
                                       "*.su beside new object files, else the build's compiler is run for them"),
                            clEnumValN(FrameSource::report, "su", "*.su files alone (build with -fstack-usage)"),
                            clEnumValN(FrameSource::compile, "compile",
                                       "run the build's compiler once more, into a temporary folder"),
                            clEnumValN(FrameSource::none, "none", "no stack bounds")),
                 cl::cat(category));
static cl::opt<std::string> caches_option("caches", cl::desc("cache sizes in KiB instead of this machine's"),
                                          cl::value_desc("L1,L2,L3"), cl::cat(category));
static cl::opt<unsigned> jobs("j", cl::desc("files parsed at once (default: CPUs)"), cl::init(0), cl::Prefix,
                              cl::cat(category));
static cl::opt<std::string>
    why("why", cl::desc("print the shortest chain of calls from a stage to a function, instead of a report"),
        cl::value_desc("STAGE:FUNCTION"), cl::cat(category));
static cl::opt<bool> timings("timings", cl::desc("print the duration of each step to standard error"),
                             cl::cat(category));

/// Reports the steps. With --timings it reports each step's duration (wall time, measured once) and the peak memory
/// so far; on a terminal it shows the running step.
class Steps {
  public:
    /// Begins a step and ends the previous one.
    void begin(const char *step) {
        auto now = std::chrono::steady_clock::now();
        if (timings && name) {
            struct rusage used = {};
            getrusage(RUSAGE_SELF, &used);
            errs() << "memwalk: " << name << ": "
                   << std::chrono::duration_cast<std::chrono::milliseconds>(now - last).count() << " ms, at most "
                   << used.ru_maxrss / 1024 << " MiB\n";
        }
        last = now, name = step;
        show("");
    }
    void show(const std::string &more) {
        if (is_terminal)
            errs() << "\r\033[K" << (name ? "memwalk: " + std::string(name) + more : "");
        errs().flush();
    }
    /// Call this before other output.
    void hide() {
        if (is_terminal)
            errs() << "\r\033[K";
    }
    void end() { begin(nullptr); }

  private:
    const char *name = nullptr;
    bool is_terminal = isatty(2) && !timings;
    std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
};
static Steps steps;

static int fail(const std::string &what, int status = 1) {
    steps.end();
    errs() << "memwalk: " << what << '\n';
    return status;
}

/// Returns the data and unified caches of CPU 0, from the kernel.
static std::vector<Cache> read_caches(uint64_t &line_bytes) {
    std::vector<Cache> caches = {{"L1", 0, ""}, {"L2", 0, ""}, {"L3", 0, ""}};
    auto read = [](const Twine &path) {
        // The kernel does not know the length of such a file before it is read.
        auto buffer = MemoryBuffer::getFileAsStream(path);
        return buffer ? (*buffer)->getBuffer().trim().str() : std::string();
    };
    for (int i = 0; i < 16; i++) {
        std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i);
        std::string type = read(folder + "/type"), size = read(folder + "/size");
        unsigned level = 0, line = 0;
        uint64_t bytes = 0;
        StringRef number(size);
        uint64_t unit = number.consume_back("K") ? 1024 : number.consume_back("M") ? 1048576 : 1;
        if (type.empty() || type == "Instruction" || StringRef(read(folder + "/level")).getAsInteger(10, level) ||
            level < 1 || level > 3 || number.getAsInteger(10, bytes))
            continue;
        caches[level - 1].bytes = bytes * unit;
        if (!StringRef(read(folder + "/coherency_line_size")).getAsInteger(10, line) && line >= 16 && line <= 1024)
            line_bytes = line;
    }
    for (Cache &cache : caches)
        if (!cache.bytes)
            cache.why_not = "the kernel reports none under /sys/devices/system/cpu/cpu0/cache";
    return caches;
}

/// Whether a path is a device, a pipe or a link. These are written directly, because a rename would replace them by a
/// file.
static bool is_special(const std::string &path) {
    sys::fs::file_status found;
    return !sys::fs::status(path, found, /*Follow=*/false) && found.type() != sys::fs::file_type::regular_file;
}

template <typename Write> static bool write_file(const std::string &path, Write write) {
    if (path == "-") {
        write(outs());
        return true;
    }
    // The file is written completely or not at all.
    std::string part = is_special(path) ? path : path + ".part";
    std::error_code failed;
    raw_fd_ostream out(part, failed);
    if (!failed) {
        write(out);
        out.close();
        if (!out.has_error())
            failed = part == path ? std::error_code() : sys::fs::rename(part, path);
        else
            failed = out.error(), out.clear_error();
    }
    if (failed) {
        fail(path + ": " + failed.message() + ". Name a file that can be written");
        if (part != path)
            sys::fs::remove(part);
    }
    return !failed;
}

/// Draws the graph with Graphviz.
static bool draw(const Result &result) {
    auto program = sys::findProgramByName("dot");
    if (!program) {
        fail("--svg: the program `dot` was not found; install Graphviz, or use --dot and draw it elsewhere");
        return false;
    }
    SmallString<128> graph, part(is_special(svg) ? svg : svg + ".part");
    if (sys::fs::createTemporaryFile("memwalk", "dot", graph) ||
        !write_file(graph.str().str(), [&](raw_ostream &out) { write_dot(result, out); }))
        return !fail("--svg: the temporary folder cannot be written");
    std::string message;
    int status = sys::ExecuteAndWait(*program, {*program, "-Tsvg", "-o", part, graph}, std::nullopt, {},
                                     /*SecondsToWait=*/60, 0, &message);
    sys::fs::remove(graph);
    bool is_in_place = part == svg;
    std::error_code failed = status        ? std::make_error_code(std::errc::io_error)
                             : is_in_place ? std::error_code()
                                           : sys::fs::rename(part, svg);
    if (!failed)
        return true;
    if (!is_in_place)
        sys::fs::remove(part);
    fail(svg + ": " + (status ? "dot ended with status " + std::to_string(status) + " " + message : failed.message()) +
         ". Name a file that can be written");
    return false;
}

/// Prints a chain of calls from a stage to a function, to explain reports that seem too large.
static int print_chain(const Calls &calls, const StageGraph &graph, StringRef question) {
    auto [from, to] = question.split(':');
    const Stage *stage = nullptr;
    for (const Stage &one : graph.stages)
        if (one.name == from)
            stage = &one;
    if (!stage)
        return fail(("--why: there is no stage `" + from + "`; the report lists them").str());
    std::map<const Function *, const CallBase *> reached;
    std::vector<const Function *> work;
    auto visit = [&](const Instruction &instruction) {
        const auto *call = dyn_cast<CallBase>(&instruction);
        if (!call)
            return;
        for (const Function *callee : calls.pointers.callees(*call))
            if ((stage->functions.count(callee) || callee->isDeclaration()) && reached.emplace(callee, call).second)
                work.push_back(callee);
    };
    auto visit_all = [&](const Function &function) {
        for (const Instruction &instruction : instructions(function))
            visit(instruction);
    };
    for (const BasicBlock *block : stage->blocks)
        for (const Instruction &instruction : *block)
            visit(instruction);
    if (stage->function)
        visit_all(*stage->function);
    for (size_t i = 0; i < work.size(); i++) {
        if (source_name(*work[i]) != to) {
            visit_all(*work[i]);
            continue;
        }
        std::vector<std::string> lines;
        const Function *at = work[i];
        while (at != stage->function && reached.count(at)) {
            const CallBase *call = reached.at(at);
            Place place = place_of(*call);
            lines.push_back(place.file + ":" + std::to_string(place.line) + ": " + source_name(*call->getFunction()) +
                            " calls " + source_name(*at) + (call->getCalledFunction() ? "" : " through a pointer"));
            if (stage->blocks.count(call->getParent()))
                break;
            at = call->getFunction();
        }
        for (auto it = lines.rbegin(); it != lines.rend(); ++it)
            outs() << *it << '\n';
        return 0;
    }
    outs() << from << " does not reach " << to << '\n';
    return 0;
}

int main(int argc, const char **argv) {
    cl::HideUnrelatedOptions(category);
    std::string usage;
    raw_string_ostream usage_out(usage);
    if (!cl::ParseCommandLineOptions(
            argc, argv,
            "Finds a C server's stages and what one request holds at each: bytes, cache lines, stack, lifetimes.\n",
            &usage_out))
        return fail(StringRef(usage).trim().str(), 2);
    if (build.empty())
        return fail("which program? Name the folder of its compile_commands.json with -p", 2);
    unsigned threads = jobs ? std::min(unsigned(jobs), 64u) : std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
    uint64_t line_bytes = 64;
    std::vector<Cache> caches;
    if (caches_option.empty())
        caches = read_caches(line_bytes);
    else {
        SmallVector<StringRef, 3> sizes;
        StringRef(caches_option).split(sizes, ',');
        for (size_t i = 0; i < sizes.size(); i++) {
            uint64_t kib = 0;
            if (sizes[i].getAsInteger(10, kib) || !kib || kib > (1u << 24) || sizes.size() > 3)
                return fail("--caches takes up to three sizes in KiB, as 48,2048,32768", 2);
            caches.push_back({"L" + std::to_string(i + 1), kib * 1024, ""});
        }
    }
    Config config;
    Program program;
    std::string error;
    if (!config_file.empty() && !config.read(config_file, error))
        return fail(error);
    steps.begin("read, compile and link");
    if (!read_units(build, program, error) ||
        !load(
            program, threads, main_file,
            [&](size_t done) {
                steps.show(" (" + std::to_string(done) + " of " + std::to_string(program.units.size()) + " files)");
            },
            error))
        return fail(error);
    steps.begin("configuration, wrappers");
    if (!apply_annotations(program.facts, config, error))
        return fail(error);
    config.add_known();
    for (const auto *table : {&config.malloc_like, &config.free_like})
        for (auto &[name, allocator] : *table)
            if (allocator.place.line && allocator.place.file == config.file && !program.module->getFunction(name)) {
                bool is_static =
                    any_of(*program.module, [&, wanted = name](const Function &f) { return source_name(f) == wanted; });
                if (!is_static)
                    return fail(allocator.place.text() + ": the program neither has nor calls a function `" + name +
                                "`; correct the name");
            }
    Allocators allocators(*program.module, config, program.facts);
    steps.begin("pointers");
    Pointers pointers(*program.module, config, allocators, program.facts, is_sound);
    Calls calls(*program.module, pointers);
    steps.begin("stages");
    if (timings)
        errs() << "memwalk: pointers: " << pointers.counts().passed << " targets passed on\n";
    StageGraph graph;
    Objects objects;
    if (!find_stages(program, config, calls, graph, error))
        return fail(error);
    if (!why.empty()) {
        steps.end();
        return print_chain(calls, graph, why);
    }
    steps.begin("objects");
    if (!find_objects(program, config, calls, allocators, graph, objects, error))
        return fail(error);
    steps.begin("lifetimes");
    find_lifetimes(calls, graph, objects);
    Result result;
    result.program = &program, result.config = &config, result.pointers = &pointers, result.graph = &graph,
    result.objects = &objects, result.allocators = &allocators;
    result.line_bytes = line_bytes;
    steps.begin("stack frames");
    Frames frames = read_frames(program, frame_source, threads, result.doubts);
    result.frames = frames.origin;
    steps.begin("stack bounds");
    result.stack = stack_bounds(calls, config, graph, frames, result.doubts);
    steps.begin("fields, globals");
    result.layouts = find_layouts(program, graph, objects, line_bytes);
    for (const std::string &warning : program.warnings)
        result.doubts.push_back(
            {"defined_twice", nullptr, warning, "leave files of other programs out of compile_commands.json"});
    if (!program.left_out.empty())
        result.doubts.push_back({"other_programs", nullptr, program.left_out, "--program names another one"});
    complete(result, calls);
    steps.begin("output");
    steps.hide();
    bool is_good = true;
    if (!output.empty())
        is_good &= write_file(output, [&](raw_ostream &out) { write_json(result, out); });
    if (!dot.empty())
        is_good &= write_file(dot, [&](raw_ostream &out) { write_dot(result, out); });
    if (!svg.empty())
        is_good &= draw(result);
    if (report || (output.empty() && dot.empty() && svg.empty()))
        write_report(result, caches, outs());
    outs().flush();
    if (outs().has_error())
        outs().clear_error(), is_good = false;
    steps.end();
    // Exits without destroying every object of the program.
    errs().flush();
    _exit(is_good ? 0 : 1);
}
