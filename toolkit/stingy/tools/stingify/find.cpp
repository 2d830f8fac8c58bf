#include "stingify/find.h"
#include "input/paths.h"
#include "input/walk.h"
#include "pch.h"
#include "clang/Lex/Preprocessor.h"

using namespace clang;

namespace stingy {
namespace {

class Finder : public Walk {
  public:
    Finder(ASTContext &context, Preprocessor &preprocessor, const std::string &directory,
           const std::map<Key, const Rewrite *> &wanted, std::map<Key, Found> &found)
        : context(context), preprocessor(preprocessor), sources(context.getSourceManager()), directory(directory),
          wanted(wanted), found(found) {}

  private:
    void visit(Stmt *statement) override {
        auto *call = dyn_cast<CallExpr>(statement);
        const FunctionDecl *callee = call ? call->getDirectCallee() : nullptr;
        if (!callee)
            return;
        SourceLocation begin = call->getBeginLoc();
        PresumedLoc at = sources.getPresumedLoc(sources.getExpansionLoc(begin));
        if (at.isInvalid())
            return;
        Key key{absolute_path(directory, at.getFilename()), at.getLine(), sources.getExpansionColumnNumber(begin),
                callee->getName().str()};
        auto rewrite = wanted.find(key);
        if (rewrite == wanted.end())
            return;
        Found here;
        std::string name = callee->getName().str();
        if (!is_library_allocator(name) && name != "free")
            here.function = key_of(*callee, directory);
        look(*call, name, *rewrite->second, here);
        auto [old, is_new] = found.emplace(key, here);
        if (!is_new && (old->second.file != here.file || old->second.name != here.name))
            old->second.problem = "two calls of " + name + " stand in one macro here";
    }

    std::string file_of(SourceLocation at) { return absolute_path(directory, sources.getFilename(at).str()); }

    void look(CallExpr &call, const std::string &callee, const Rewrite &rewrite, Found &f) {
        SourceLocation begin = call.getBeginLoc(), end = call.getRParenLoc();
        f.has_arguments = call.getNumArgs() > 0;
        // The text of a macro's argument is outside the macro.
        while (begin.isMacroID() && sources.isMacroArgExpansion(begin))
            begin = sources.getImmediateSpellingLoc(begin);
        while (end.isMacroID() && sources.isMacroArgExpansion(end))
            end = sources.getImmediateSpellingLoc(end);
        std::string written = callee;
        if (begin.isMacroID()) {
            std::string macro = Lexer::getImmediateMacroName(call.getBeginLoc(), sources, context.getLangOpts()).str();
            if (end.isFileID() && is_another_name(preprocessor, begin)) {
                // `#define xalloc malloc`: the use has the parentheses.
                written = macro;
                begin = sources.getExpansionLoc(begin);
            } else if (is_whole_macro(context, call)) {
                f.expansion = expand(preprocessor, call);
                if (!f.expansion.problem.empty()) {
                    f.problem = f.expansion.problem;
                    return;
                }
                f.file = file_of(sources.getExpansionLoc(begin));
                f.name = f.expansion.from;
                f.is_whole_macro = true;
                return;
            } else if (!rewrite.is_free) {
                f.problem = "the allocation is a part of the macro " + macro + ", which other objects may use";
                return;
            } else {
                begin = sources.getSpellingLoc(begin), end = sources.getSpellingLoc(end);
                f.is_in_macro_body = true;
            }
        }
        if (end.isMacroID() || !sources.getFileEntryRefForID(sources.getFileID(begin)) ||
            sources.getFileID(begin) != sources.getFileID(end)) {
            f.problem = "the call is put together from pieces of macros";
            return;
        }
        auto [file, offset] = sources.getDecomposedLoc(begin);
        unsigned length = Lexer::MeasureTokenLength(begin, sources, context.getLangOpts());
        if (sources.getBufferData(file).substr(offset, length) != written) {
            f.problem = "the call is not written with the plain name " + callee;
            return;
        }
        // Finds the parenthesis after the name; a comment between them is refused.
        StringRef text = sources.getBufferData(file);
        unsigned next = offset + length;
        while (next < text.size() && (isspace((unsigned char)text[next]) || text[next] == '\\'))
            next++;
        f.close = sources.getDecomposedLoc(end).second;
        if (next >= text.size() || text[next] != '(' || next > f.close) {
            f.problem = "no parenthesis follows " + written;
            return;
        }
        f.file = file_of(begin);
        f.name = offset, f.name_length = length, f.open = next + 1;
    }

    ASTContext &context;
    Preprocessor &preprocessor;
    SourceManager &sources;
    const std::string &directory;
    const std::map<Key, const Rewrite *> &wanted;
    std::map<Key, Found> &found;
};

class Action : public ASTFrontendAction {
  public:
    Action(std::string directory, const std::map<Key, const Rewrite *> &wanted, std::map<Key, Found> &found,
           OwnFunctions *functions)
        : directory(std::move(directory)), wanted(wanted), found(found), functions(functions) {}
    std::unique_ptr<ASTConsumer> CreateASTConsumer(CompilerInstance &compiler, StringRef) override {
        struct Consumer : ASTConsumer {
            Action &action;
            Preprocessor &preprocessor;
            Consumer(Action &action, Preprocessor &preprocessor) : action(action), preprocessor(preprocessor) {}
            void HandleTranslationUnit(ASTContext &context) override {
                Finder finder(context, preprocessor, action.directory, action.wanted, action.found);
                finder.walk(context.getTranslationUnitDecl());
                if (action.functions)
                    read_functions(context, preprocessor, action.directory, *action.functions);
            }
        };
        return std::make_unique<Consumer>(*this, compiler.getPreprocessor());
    }

  private:
    std::string directory;
    const std::map<Key, const Rewrite *> &wanted;
    std::map<Key, Found> &found;
    OwnFunctions *functions;
};

} // namespace

bool find_calls(const Unit &unit, const std::map<Key, const Rewrite *> &wanted, std::map<Key, Found> &found,
                OwnFunctions *functions, std::string &error) {
    llvm::IntrusiveRefCntPtr<llvm::vfs::FileSystem> disk(llvm::vfs::createPhysicalFileSystem().release());
    disk->setCurrentWorkingDirectory(unit.directory);
    FileSystemOptions options;
    options.WorkingDir = unit.directory;
    llvm::IntrusiveRefCntPtr<FileManager> files(new FileManager(options, disk));
    std::vector<std::string> arguments = parse_arguments(unit);
    arguments.push_back("-fsyntax-only");
    std::string messages;
    llvm::raw_string_ostream out(messages);
    llvm::IntrusiveRefCntPtr<DiagnosticOptions> diagnostics(new DiagnosticOptions());
    diagnostics->ShowCarets = false;
    TextDiagnosticPrinter printer(out, diagnostics.get());
    tooling::ToolInvocation run(arguments, std::make_unique<Action>(unit.directory, wanted, found, functions),
                                files.get());
    run.setDiagnosticConsumer(&printer);
    run.setDiagnosticOptions(diagnostics.get());
    if (run.run())
        return true;
    error = messages + unit.file + " does not compile with Clang 19. Build the program first, then run this again";
    return false;
}

} // namespace stingy
