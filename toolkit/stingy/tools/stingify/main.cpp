// stingify: rewrites a server's allocations for the allocator that stingygen makes (Bhatia, Consel and Lawall 2006,
// section 4.4).
#include "input/paths.h"
#include "pch.h"
#include "stingify/rewrite.h"

using namespace llvm;
using namespace stingy;

static cl::OptionCategory category("stingify");
static cl::opt<std::string> build("p", cl::desc("folder of compile_commands.json"), cl::value_desc("folder"),
                                  cl::cat(category));
static cl::opt<std::string> memory(cl::Positional, cl::desc("mem.json"), cl::cat(category));
static cl::list<std::string> objects("objects", cl::desc("rewrite these objects only"), cl::value_desc("id,id"),
                                     cl::CommaSeparated, cl::cat(category));
static cl::opt<std::string> header("header", cl::desc("header to include (default stingy_gen.h)"),
                                   cl::init("stingy_gen.h"), cl::value_desc("file"), cl::cat(category));
static cl::list<std::string>
    replacements("replace", cl::desc("rewrite calls of the malloc-like OLD as NEW(object, arguments of OLD)"),
                 cl::value_desc("OLD=NEW"), cl::CommaSeparated, cl::cat(category));

static int fail(const std::string &what, int status = 1) {
    errs() << "stingify: " << what << '\n';
    return status;
}

int main(int argc, const char **argv) {
    cl::HideUnrelatedOptions(category);
    std::string usage;
    raw_string_ostream usage_out(usage);
    if (!cl::ParseCommandLineOptions(argc, argv,
                                     "Writes a unified diff that gives a server's per-request objects to the Stingy "
                                     "allocator; prints refused objects with the reason to standard error.\n",
                                     &usage_out))
        return fail(StringRef(usage).trim().str(), 2);
    if (build.empty() || memory.empty())
        return fail("usage: stingify -p BUILD mem.json > stingy.patch", 2);
    if (header.empty() || StringRef(header).find_first_of("\"\n\\") != StringRef::npos)
        return fail("--header: this is no name of a header", 2);
    Program program;
    Plan plan;
    std::string error;
    for (const std::string &word : replacements) {
        auto [old, with] = StringRef(word).split('=');
        auto is_name = [](StringRef name) {
            return !name.empty() && all_of(name, [](char c) { return isAlnum(c) || c == '_'; });
        };
        if (!is_name(old) || !is_name(with))
            return fail("--replace: `" + word + "` is not OLD=NEW, two names of functions", 2);
        plan.replacements[old.str()] = with.str();
    }
    std::set<std::string> only(objects.begin(), objects.end());
    if (!read_units(build, program, error) || !read_plan(memory, program, only, plan, error))
        return fail(error);
    Edits edits;
    if (!find_edits(program, header, plan, edits, error))
        return fail(error);
    unsigned rewritten = 0;
    for (const std::string &object : plan.objects) {
        auto refused = plan.refused.find(object);
        if (refused == plan.refused.end())
            rewritten++;
        else
            errs() << "stingify: " << object << " is left alone: "
                   << (StringRef(refused->second).starts_with(program.root + "/")
                           ? refused->second.substr(program.root.size() + 1)
                           : refused->second)
                   << '\n';
    }
    for (auto &[file, changes] : edits.files) {
        auto buffer = MemoryBuffer::getFile(file, false, false);
        if (!buffer)
            return fail(file + ": " + buffer.getError().message());
        outs() << unified_diff(shown_path(program.root, file), (*buffer)->getBuffer().str(), changes);
    }
    outs().flush();
    errs() << "stingify: " << rewritten << " of " << plan.objects.size() << " objects rewritten in "
           << edits.files.size() << " files; apply with: patch -p1 -d " << program.root << " < stingy.patch\n";
    return rewritten ? 0 : 1;
}
