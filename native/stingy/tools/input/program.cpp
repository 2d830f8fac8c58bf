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
    std::set<std::string> seen;
    for (const clang::tooling::CompileCommand &command : database->getAllCompileCommands()) {
        std::string file = absolute_path(command.Directory, command.Filename);
        StringRef ending = sys::path::extension(file);
        if (ending != ".c" || !seen.insert(file).second)
            continue;
        Unit unit{command.Directory, file, command.CommandLine, command.Output};
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
    std::sort(program.units.begin(), program.units.end(), [](const Unit &a, const Unit &b) { return a.file < b.file; });
    program.root = program.build;
    // A build folder inside or beside the source: show paths from the folder that holds all units.
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
                // The fortified C library puts calls of its own in the place of the program's.
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
    UnitAction(LLVMContext &context, const std::string &directory, Facts &facts, std::unique_ptr<Module> &module)
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
    std::unique_ptr<Module> &module;
};

struct Parsed {
    Facts facts;
    SmallString<0> code;
    std::string messages;
    bool is_good = false;
};

/// The optimiser's first step: variables become values, so that the flow of pointers and states can be read off.
void make_values(Module &module) {
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
    std::unique_ptr<Module> module;
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
    raw_svector_ostream stream(parsed.code);
    WriteBitcodeToFile(*module, stream);
}

} // namespace

bool load(Program &program, unsigned jobs, std::string &error) {
    InitializeNativeTarget();
    InitializeNativeTargetAsmParser();
    std::vector<Parsed> parsed(program.units.size());
    std::atomic<size_t> next{0};
    auto work = [&] {
        for (size_t i; (i = next++) < parsed.size();)
            parse(program.units[i], parsed[i]);
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
                 " files do not compile with Clang 19. Build the program first (generated headers), check that "
                 "compile_commands.json is of this source, then run this again";
        return false;
    }
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
        // Two programs of one build, each with its own main: the first definition stays, and that is said.
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
    // An annotation is no use of a function's address.
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
