#include "input/program.h"
#include "input/paths.h"
#include "pch.h"
#include <atomic>
#include <mutex>
#include <thread>

using namespace llvm;

namespace stingy {

std::string absolute_path(const std::string &directory, const std::string &file) {
    SmallString<256> path(file);
    if (!sys::path::is_absolute(path)) {
        path = directory;
        sys::path::append(path, file);
    }
    sys::path::remove_dots(path, /*remove_dot_dot=*/true);
    return std::string(path.str());
}

std::string shown_path(const std::string &base, const std::string &file) {
    if (!base.empty() && file.size() > base.size() + 1 && file.compare(0, base.size(), base) == 0 &&
        file[base.size()] == '/')
        return file.substr(base.size() + 1);
    return file;
}

Program::Program() : context(std::make_unique<LLVMContext>()) {}
Program::~Program() = default;

/// Drops arguments that only say that the code is for a library.
static std::vector<std::string> meaning(const Unit &unit) {
    std::vector<std::string> words = parse_arguments(unit);
    words.erase(std::remove(words.begin(), words.end(), "-DPIC"), words.end());
    return words;
}

bool read_units(const std::string &build, Program &program, std::string &error) {
    SmallString<256> folder(build);
    sys::fs::make_absolute(folder);
    sys::path::remove_dots(folder, true);
    program.build = std::string(folder.str());
    std::string path = program.build + "/compile_commands.json";
    if (!sys::fs::exists(path)) {
        error = path + ": no such file. Name its folder with -p; CMake writes it with "
                       "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON, any other build under `bear -- make`";
        return false;
    }
    std::string message;
    auto database = clang::tooling::JSONCompilationDatabase::loadFromFile(path, message,
                                                                          clang::tooling::JSONCommandLineSyntax::Gnu);
    if (!database) {
        error = path + ": " + StringRef(message).trim().str() + ". It is written by the build; make it anew";
        return false;
    }
    std::set<std::pair<std::string, std::vector<std::string>>> seen;
    for (const clang::tooling::CompileCommand &command : database->getAllCompileCommands()) {
        std::string file = absolute_path(command.Directory, command.Filename);
        StringRef ending = sys::path::extension(file);
        if (ending != ".c")
            continue;
        Unit unit{command.Directory, file, command.CommandLine, command.Output};
        // A file compiled for two programs in two ways is two units.
        if (!seen.insert({file, meaning(unit)}).second)
            continue;
        for (size_t i = 0; i + 1 < unit.command.size() && unit.output.empty(); i++)
            if (unit.command[i] == "-o")
                unit.output = unit.command[i + 1];
        if (!unit.output.empty())
            unit.output = absolute_path(unit.directory, unit.output);
        if (!sys::fs::exists(file)) {
            error = path + ": " + file + " is named here and does not exist. Make the file anew with the build";
            return false;
        }
        program.units.push_back(unit);
    }
    if (program.units.empty()) {
        error = path + ": it names no C file (*.c)";
        return false;
    }
    std::stable_sort(program.units.begin(), program.units.end(),
                     [](const Unit &a, const Unit &b) { return a.file < b.file; });
    program.root = program.build;
    // If the build folder is inside or next to the source, paths are shown relative to the folder
    // that holds all units.
    std::string common = sys::path::parent_path(program.units[0].file).str();
    for (const Unit &unit : program.units)
        while (!common.empty() && common != "/" && StringRef(unit.file).substr(0, common.size() + 1) != common + "/")
            common = sys::path::parent_path(common).str();
    if (!common.empty() && common != "/")
        program.root = common;
    return true;
}

std::vector<std::string> parse_arguments(const Unit &unit) {
    std::vector<std::string> arguments = {"clang"};
    static const char *const with_value[] = {"-I",       "-D",       "-U", "-isystem",  "-iquote",  "-idirafter",
                                             "-include", "-imacros", "-x", "-isysroot", "-iprefix", "-iwithprefix"};
    static const char *const alone[] = {
        "-fsigned-char", "-funsigned-char", "-fno-signed-char", "-fshort-enums", "-fpack-struct",  "-m32",
        "-m64",          "-pthread",        "-nostdinc",        "-ansi",         "-fgnu89-inline", "-fms-extensions",
        "-fcommon",      "-fno-common",     "-fopenmp"};
    for (size_t i = 1; i < unit.command.size(); i++) {
        StringRef word = unit.command[i];
        if (word.starts_with("-std=") || is_contained(alone, word)) {
            arguments.push_back(word.str());
            continue;
        }
        for (const char *flag : with_value)
            if (word == flag && i + 1 < unit.command.size()) {
                arguments.push_back(word.str());
                arguments.push_back(unit.command[++i]);
                break;
            } else if (word.starts_with(flag) && word != flag && StringRef(flag).size() == 2) {
                // The fortified C library replaces the program's calls by its own functions.
                if (!word.starts_with("-D_FORTIFY_SOURCE"))
                    arguments.push_back(word.str());
                break;
            }
    }
    for (const char *word : {"-U_FORTIFY_SOURCE", "-w", "-Wno-implicit-function-declaration", "-Wno-implicit-int",
                             "-Wno-int-conversion", "-Wno-incompatible-function-pointer-types", "-Wno-return-type",
                             "-Wno-error", "-ferror-limit=3", "-fno-builtin", "-resource-dir", STINGY_RESOURCE_DIR})
        arguments.push_back(word);
    arguments.push_back(unit.file);
    return arguments;
}

namespace {

/// Compiles one unit to code in memory while its syntax tree is read for facts.
class UnitAction : public clang::EmitLLVMOnlyAction {
  public:
    UnitAction(LLVMContext &context, const std::string &directory, Facts &facts, std::unique_ptr<llvm::Module> &module)
        : EmitLLVMOnlyAction(&context), directory(directory), facts(facts), module(module) {}

  protected:
    std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance &compiler, StringRef file) override {
        std::vector<std::unique_ptr<clang::ASTConsumer>> consumers;
        consumers.push_back(make_fact_consumer(compiler, directory, facts));
        consumers.push_back(EmitLLVMOnlyAction::CreateASTConsumer(compiler, file));
        return std::make_unique<clang::MultiplexConsumer>(std::move(consumers));
    }
    void EndSourceFileAction() override {
        EmitLLVMOnlyAction::EndSourceFileAction();
        module = takeModule();
    }

  private:
    std::string directory;
    Facts &facts;
    std::unique_ptr<llvm::Module> &module;
};

struct Parsed {
    Facts facts;
    SmallString<0> code;
    std::string messages;
    std::set<std::string> defines, needs; ///< symbols
    bool is_good = false;
};

/// The optimiser's first step: variables become values, which shows the flow of pointers and states.
void make_values(llvm::Module &module) {
    PassBuilder builder;
    LoopAnalysisManager loops;
    FunctionAnalysisManager functions;
    CGSCCAnalysisManager components;
    ModuleAnalysisManager modules;
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(components);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, components, modules);
    FunctionPassManager passes;
    passes.addPass(SROAPass(SROAOptions::PreserveCFG));
    for (Function &function : module)
        if (!function.isDeclaration())
            passes.run(function, functions);
}

void parse(const Unit &unit, Parsed &parsed) {
    LLVMContext context;
    std::unique_ptr<llvm::Module> module;
    IntrusiveRefCntPtr<vfs::FileSystem> disk(vfs::createPhysicalFileSystem().release());
    disk->setCurrentWorkingDirectory(unit.directory);
    clang::FileSystemOptions options;
    options.WorkingDir = unit.directory;
    IntrusiveRefCntPtr<clang::FileManager> files(new clang::FileManager(options, disk));
    std::vector<std::string> arguments = parse_arguments(unit);
    for (const char *word : {"-c", "-g", "-O0", "-Xclang", "-disable-O0-optnone", "-Xclang", "-disable-llvm-passes"})
        arguments.push_back(word);
    raw_string_ostream out(parsed.messages);
    IntrusiveRefCntPtr<clang::DiagnosticOptions> diagnostics(new clang::DiagnosticOptions());
    diagnostics->ShowCarets = false;
    clang::TextDiagnosticPrinter printer(out, diagnostics.get());
    clang::tooling::ToolInvocation run(
        arguments, std::make_unique<UnitAction>(context, unit.directory, parsed.facts, module), files.get());
    run.setDiagnosticConsumer(&printer);
    run.setDiagnosticOptions(diagnostics.get());
    parsed.is_good = run.run() && module;
    if (!parsed.is_good)
        return;
    make_values(*module);
    for (const GlobalValue &symbol : module->global_values())
        if (!symbol.hasLocalLinkage() && !symbol.getName().starts_with("llvm."))
            (symbol.isDeclarationForLinker() ? parsed.needs : parsed.defines).insert(symbol.getName().str());
    raw_svector_ostream stream(parsed.code);
    WriteBitcodeToFile(*module, stream);
}

/// Returns how similarly two units are compiled: the number of shared macros and folders minus those that only one
/// has.
int likeness(const Unit &a, const Unit &b) {
    int both = 0, all = 0;
    std::vector<std::string> left = meaning(a), right = meaning(b);
    for (const std::string &word : left)
        both += word != a.file && is_contained(right, word);
    all = int(left.size() + right.size()) - 2;
    return 2 * both - all;
}

/// Finds the units of which a program is linked, beginning with the unit that has its main: units that define what
/// others need, as a linker takes them from an archive. If several define it, the one compiled most similarly is
/// taken, or the one in the same folder.
std::set<size_t> linked_with(size_t first, const Program &program, const std::vector<Parsed> &parsed,
                             const std::set<size_t> &mains) {
    std::map<std::string, std::vector<size_t>> definers;
    for (size_t i = 0; i < parsed.size(); i++)
        if (i == first || !mains.count(i))
            for (const std::string &symbol : parsed[i].defines)
                definers[symbol].push_back(i);
    std::set<size_t> linked{first};
    std::vector<size_t> work{first};
    auto order = [&](size_t i) {
        return std::make_pair(sys::path::parent_path(program.units[i].file) ==
                                  sys::path::parent_path(program.units[first].file),
                              likeness(program.units[i], program.units[first]));
    };
    while (!work.empty()) {
        size_t unit = work.back();
        work.pop_back();
        for (const std::string &symbol : parsed[unit].needs) {
            auto found = definers.find(symbol);
            if (found == definers.end() || any_of(found->second, [&](size_t i) { return linked.count(i) != 0; }))
                continue;
            size_t best = found->second[0];
            for (size_t i : found->second)
                if (order(i) > order(best))
                    best = i;
            linked.insert(best), work.push_back(best);
        }
    }
    return linked;
}

/// If a file is compiled in several ways, keeps the one most similar to the main's; reports files for which this does
/// not decide.
void choose_ways(Program &program, std::vector<Parsed> &parsed) {
    const Unit *main = nullptr;
    for (size_t i = 0; i < parsed.size(); i++)
        if (parsed[i].defines.count("main"))
            main = &program.units[i];
    std::vector<Unit> units;
    std::vector<Parsed> kept;
    for (size_t i = 0, next; i < parsed.size(); i = next) {
        for (next = i + 1; next < parsed.size() && program.units[next].file == program.units[i].file;)
            next++;
        size_t best = i;
        bool is_tie = next > i + 1 && !main;
        for (size_t j = i + 1; j < next && main; j++) {
            int more = likeness(program.units[j], *main) - likeness(program.units[best], *main);
            is_tie = more == 0;
            if (more > 0)
                best = j;
        }
        if (is_tie)
            program.warnings.push_back(shown_path(program.root, program.units[i].file) +
                                       " is compiled in several ways; the first one is used");
        units.push_back(program.units[best]), kept.push_back(std::move(parsed[best]));
    }
    program.units = std::move(units), parsed = std::move(kept);
}

/// If there are several programs, keeps the chosen one: drops units that only the others are linked of.
bool choose_program(Program &program, std::vector<Parsed> &parsed, const std::string &main_file, std::string &error) {
    std::set<size_t> mains;
    std::string names;
    std::optional<size_t> chosen;
    std::string wanted = absolute_path("/", main_file);
    for (size_t i = 0; i < parsed.size(); i++) {
        if (!parsed[i].defines.count("main"))
            continue;
        mains.insert(i);
        names += (names.empty() ? "" : ", ") + shown_path(program.root, program.units[i].file);
        if (StringRef file = program.units[i].file; !main_file.empty() && (file == main_file || file.ends_with(wanted)))
            chosen = i;
    }
    if (mains.size() < 2 && main_file.empty())
        return true;
    if (!chosen) {
        error = program.build + "/compile_commands.json: ";
        if (!main_file.empty())
            error += "no file `" + main_file + "` of it defines main; main is in " + (names.empty() ? "none" : names);
        else
            error += std::to_string(mains.size()) + " programs, with main in " + names +
                     ". Which one is the server? --program FILE names the file with its main";
        return false;
    }
    std::set<size_t> own = linked_with(*chosen, program, parsed, mains), others;
    std::string other_names;
    for (size_t i : mains)
        if (i != *chosen) {
            std::set<size_t> of_it = linked_with(i, program, parsed, mains);
            others.insert(of_it.begin(), of_it.end());
            other_names += (other_names.empty() ? "" : ", ") + shown_path(program.root, program.units[i].file);
        }
    std::vector<Unit> units;
    std::vector<Parsed> kept;
    unsigned left_out = 0;
    for (size_t i = 0; i < parsed.size(); i++)
        if (own.count(i) || !others.count(i))
            units.push_back(std::move(program.units[i])), kept.push_back(std::move(parsed[i]));
        else
            left_out++;
    program.units = std::move(units), parsed = std::move(kept);
    if (left_out)
        program.left_out = std::to_string(left_out) +
                           " files that only other programs of the build need were left out (main in " + other_names +
                           ")";
    return true;
}

} // namespace

bool load(Program &program, unsigned jobs, const std::string &main_file, const std::function<void(size_t)> &progress,
          std::string &error) {
    InitializeNativeTarget();
    InitializeNativeTargetAsmParser();
    std::vector<Parsed> parsed(program.units.size());
    std::atomic<size_t> next{0};
    std::mutex lock;
    size_t done = 0;
    auto work = [&] {
        for (size_t i; (i = next++) < parsed.size();) {
            parse(program.units[i], parsed[i]);
            std::lock_guard<std::mutex> guard(lock);
            progress(++done);
        }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < jobs && i < parsed.size(); i++)
        threads.emplace_back(work);
    work();
    for (std::thread &thread : threads)
        thread.join();
    unsigned bad = 0;
    for (size_t i = 0; i < parsed.size(); i++)
        if (!parsed[i].is_good && ++bad <= 3)
            error += parsed[i].messages.empty() ? program.units[i].file + ": the compiler gave up without a message\n"
                                                : parsed[i].messages;
    if (bad) {
        error += std::to_string(bad) + " of " + std::to_string(parsed.size()) +
                 " files do not compile with Clang 19. Build the program first (it may generate headers), check that "
                 "compile_commands.json is of this source, then run this again";
        return false;
    }
    if (!choose_program(program, parsed, main_file, error))
        return false;
    choose_ways(program, parsed);
    for (size_t i = 0; i < parsed.size(); i++) {
        program.facts.add(std::move(parsed[i].facts));
        auto read = parseBitcodeFile(MemoryBufferRef(parsed[i].code.str(), program.units[i].file), *program.context);
        parsed[i].code = SmallString<0>();
        if (!read) {
            error = program.units[i].file + ": " + toString(read.takeError());
            return false;
        }
        if (!program.module) {
            program.module = std::move(*read);
            continue;
        }
        // Two programs of one build have a main each: the first definition stays, with a doubt.
        for (Function &function : **read)
            if (!function.isDeclaration() && !function.hasLocalLinkage())
                if (Function *old = program.module->getFunction(function.getName());
                    old && !old->isDeclaration() && !old->isWeakForLinker() && !function.isWeakForLinker()) {
                    program.warnings.push_back(shown_path(program.root, program.units[i].file) + " defines " +
                                               function.getName().str() +
                                               " again; left out. Is this file of another program?");
                    function.setLinkage(GlobalValue::InternalLinkage);
                    function.setComdat(nullptr);
                }
        for (GlobalVariable &global : (*read)->globals())
            if (global.hasInitializer() && !global.hasLocalLinkage() && !global.hasCommonLinkage())
                if (GlobalVariable *old = program.module->getGlobalVariable(global.getName());
                    old && old->hasInitializer() && !old->hasCommonLinkage() && !old->isWeakForLinker() &&
                    !global.isWeakForLinker())
                    global.setLinkage(GlobalValue::InternalLinkage);
        if (Linker::linkModules(*program.module, std::move(*read))) {
            error = program.units[i].file + ": cannot be linked to the others; see above";
            return false;
        }
    }
    // An annotation does not count as a use of a function's address.
    if (GlobalVariable *notes = program.module->getGlobalVariable("llvm.global.annotations"))
        notes->eraseFromParent();
    return true;
}

Place place_of(const Function &function) {
    const DISubprogram *info = function.getSubprogram();
    if (!info)
        return {};
    return {absolute_path(info->getDirectory().str(), info->getFilename().str()), info->getLine()};
}

Place place_of(const Instruction &instruction) {
    const DebugLoc &at = instruction.getDebugLoc();
    if (!at)
        return {};
    const auto *scope = cast<DIScope>(at.getScope());
    return {absolute_path(scope->getDirectory().str(), scope->getFilename().str()), at.getLine()};
}

std::string source_name(const Function &function) {
    if (const DISubprogram *info = function.getSubprogram())
        return info->getName().str();
    return function.getName().str();
}

} // namespace stingy
