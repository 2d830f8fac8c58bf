#include "stingify/rewrite.h"
#include "input/paths.h"
#include "input/walk.h"
#include "pch.h"

using namespace clang;

namespace stingy {
namespace {

using Key = std::tuple<std::string, unsigned, unsigned, std::string>;

/// How one call is to be changed, worked out once; which object it is for does not matter yet.
struct Found {
    std::string file; ///< where the edit goes: a macro's definition may be elsewhere
    unsigned name = 0, name_length = 0, after_parenthesis = 0,
             end = 0; ///< offsets; end: behind the closing parenthesis
    bool has_arguments = false, is_constant = false;
    uint64_t bytes = 0;
    bool is_whole_macro = false;   ///< the macro's use is replaced: name..end
    bool is_in_macro_body = false; ///< the macro's definition is changed, for all its uses
    std::string casts, pointer;    ///< of a whole macro
    std::string problem;
};

class Finder : public Walk {
  public:
    Finder(ASTContext &context, const std::string &directory, const std::map<Key, const Rewrite *> &wanted,
           std::map<Key, Found> &found)
        : context(context), sources(context.getSourceManager()), directory(directory), wanted(wanted), found(found) {}

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
        Found here = look(*call, callee->getName(), *rewrite->second);
        auto [old, is_new] = found.emplace(key, here);
        if (!is_new && (old->second.file != here.file || old->second.name != here.name))
            old->second.problem = "two calls of " + callee->getName().str() + " stand in one macro here";
    }

    std::string file_of(SourceLocation at) { return absolute_path(directory, sources.getFilename(at).str()); }

    Found look(CallExpr &call, StringRef callee, const Rewrite &rewrite) {
        Found f;
        Expr::EvalResult size;
        if (call.getNumArgs() == 1 && call.getArg(0)->getType()->isIntegerType() &&
            call.getArg(0)->EvaluateAsInt(size, context) && !call.getArg(0)->HasSideEffects(context) &&
            size.Val.getInt().isRepresentableByInt64())
            f.is_constant = true, f.bytes = size.Val.getInt().getExtValue();
        SourceLocation begin = call.getBeginLoc(), end = call.getRParenLoc();
        // Written as an argument of a macro: the text is outside of it.
        while (begin.isMacroID() && sources.isMacroArgExpansion(begin))
            begin = sources.getImmediateSpellingLoc(begin);
        while (end.isMacroID() && sources.isMacroArgExpansion(end))
            end = sources.getImmediateSpellingLoc(end);
        if (begin.isMacroID()) {
            if (look_at_macro(call, rewrite, f))
                return f;
            begin = sources.getSpellingLoc(begin), end = sources.getSpellingLoc(end);
            if (!rewrite.is_free) {
                f.problem = "the allocation is a part of the macro " +
                            Lexer::getImmediateMacroName(call.getBeginLoc(), sources, context.getLangOpts()).str() +
                            ", which other objects may use";
                return f;
            }
            f.is_in_macro_body = true;
        }
        if (end.isMacroID() || !sources.getFileEntryRefForID(sources.getFileID(begin)) ||
            sources.getFileID(begin) != sources.getFileID(end)) {
            f.problem = "the call is put together from pieces of macros";
            return f;
        }
        auto [file, offset] = sources.getDecomposedLoc(begin);
        unsigned length = Lexer::MeasureTokenLength(begin, sources, context.getLangOpts());
        if (sources.getBufferData(file).substr(offset, length) != callee) {
            f.problem = "the call is not written with the plain name " + callee.str();
            return f;
        }
        // The parenthesis behind the name; a comment between is odd enough to refuse.
        StringRef text = sources.getBufferData(file);
        unsigned next = offset + length;
        while (next < text.size() && (isspace((unsigned char)text[next]) || text[next] == '\\'))
            next++;
        if (next >= text.size() || text[next] != '(') {
            f.problem = "no parenthesis follows " + callee.str();
            return f;
        }
        f.file = file_of(begin);
        f.name = offset, f.name_length = length, f.after_parenthesis = next + 1;
        f.end = sources.getDecomposedLoc(end).second + 1;
        f.has_arguments = call.getNumArgs() > 0;
        return f;
    }

    /// A macro's use that is nothing but this call, with casts and parentheses around it.
    bool look_at_macro(CallExpr &call, const Rewrite &rewrite, Found &f) {
        SourceLocation start = call.getBeginLoc();
        const Expr *outer = &call;
        DynTypedNode node = DynTypedNode::create(call);
        std::string casts;
        while (true) {
            auto parents = context.getParents(node);
            if (parents.empty())
                break;
            const Expr *parent = parents[0].get<Expr>();
            if (!parent || !(isa<ParenExpr>(parent) || isa<CastExpr>(parent)))
                break;
            if (!isa<ImplicitCastExpr>(parent) &&
                sources.getExpansionLoc(parent->getBeginLoc()) != sources.getExpansionLoc(start))
                break;
            if (!isa<ImplicitCastExpr>(parent) && !parent->getBeginLoc().isMacroID())
                break;
            if (const auto *cast = dyn_cast<CStyleCastExpr>(parent))
                casts = "(" + cast->getTypeAsWritten().getAsString(PrintingPolicy(context.getLangOpts())) + ")" + casts;
            outer = parent;
            node = parents[0];
        }
        SourceLocation first, last;
        if (!Lexer::isAtStartOfMacroExpansion(outer->getBeginLoc(), sources, context.getLangOpts(), &first) ||
            !Lexer::isAtEndOfMacroExpansion(outer->getEndLoc(), sources, context.getLangOpts(), &last))
            return false;
        CharSourceRange range = sources.getExpansionRange(call.getBeginLoc());
        SourceLocation from = range.getBegin(), to = range.getEnd();
        if (first != from || from.isMacroID() || to.isMacroID() || sources.getFileID(from) != sources.getFileID(to))
            return false;
        if (rewrite.is_free) {
            if (call.getNumArgs() != 1)
                return false;
            const Expr *argument = call.getArg(0);
            SourceLocation a = argument->getBeginLoc(), b = argument->getEndLoc();
            while (a.isMacroID() && sources.isMacroArgExpansion(a))
                a = sources.getImmediateSpellingLoc(a);
            while (b.isMacroID() && sources.isMacroArgExpansion(b))
                b = sources.getImmediateSpellingLoc(b);
            if (a.isMacroID() || b.isMacroID())
                return false;
            f.pointer =
                Lexer::getSourceText(CharSourceRange::getTokenRange(a, b), sources, context.getLangOpts()).str();
        } else if (!rewrite.is_fixed_size || !f.is_constant || f.bytes != rewrite.bytes)
            return false;
        f.file = file_of(from);
        f.casts = casts;
        f.name = sources.getDecomposedLoc(from).second;
        f.end = sources.getDecomposedLoc(to).second + Lexer::MeasureTokenLength(to, sources, context.getLangOpts());
        f.is_whole_macro = true;
        return true;
    }

    ASTContext &context;
    SourceManager &sources;
    const std::string &directory;
    const std::map<Key, const Rewrite *> &wanted;
    std::map<Key, Found> &found;
};

class Action : public ASTFrontendAction {
  public:
    Action(std::string directory, const std::map<Key, const Rewrite *> &wanted, std::map<Key, Found> &found)
        : directory(std::move(directory)), wanted(wanted), found(found) {}
    std::unique_ptr<ASTConsumer> CreateASTConsumer(CompilerInstance &, StringRef) override {
        struct Consumer : ASTConsumer {
            Action &action;
            Consumer(Action &action) : action(action) {}
            void HandleTranslationUnit(ASTContext &context) override {
                Finder finder(context, action.directory, action.wanted, action.found);
                finder.walk(context.getTranslationUnitDecl());
            }
        };
        return std::make_unique<Consumer>(*this);
    }

  private:
    std::string directory;
    const std::map<Key, const Rewrite *> &wanted;
    std::map<Key, Found> &found;
};

bool parse(const Unit &unit, const std::map<Key, const Rewrite *> &wanted, std::map<Key, Found> &found,
           std::string &error) {
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
    tooling::ToolInvocation run(arguments, std::make_unique<Action>(unit.directory, wanted, found), files.get());
    run.setDiagnosticConsumer(&printer);
    run.setDiagnosticOptions(diagnostics.get());
    if (run.run())
        return true;
    error = messages + unit.file + " does not compile with Clang 19. Build the program first, then run this again";
    return false;
}

std::string replacement(const Plan &plan, const std::string &callee) {
    if (auto told = plan.replacements.find(callee); told != plan.replacements.end())
        return told->second;
    if (callee == "malloc")
        return "stingy_alloc_var";
    return "stingy_" + callee; // calloc, realloc, strdup, strndup, free
}

} // namespace

bool find_edits(const Program &program, const std::string &header, Plan &plan, Edits &edits, std::string &error) {
    std::map<Key, const Rewrite *> wanted;
    std::set<std::string> wanted_files;
    for (const Rewrite &rewrite : plan.rewrites)
        if (plan.uses(rewrite))
            wanted[{rewrite.file, rewrite.line, rewrite.column, rewrite.callee}] = &rewrite,
                                                                wanted_files.insert(rewrite.file);
    if (wanted.empty())
        return true;
    std::map<Key, Found> found;
    bool has_header = llvm::any_of(wanted_files, [&](const std::string &file) {
        return llvm::none_of(program.units, [&](const Unit &unit) { return unit.file == file; });
    });
    for (const Unit &unit : program.units)
        if ((has_header || wanted_files.count(unit.file)) && !parse(unit, wanted, found, error))
            return false;
    for (auto &[key, rewrite] : wanted) {
        auto here = found.find(key);
        if (here == found.end())
            plan.refuse(*rewrite, "there is no call of " + rewrite->callee + " in column " +
                                      std::to_string(rewrite->column) + "; has the source changed? Run memwalk again");
        else if (!here->second.problem.empty())
            plan.refuse(*rewrite, here->second.problem);
        else if (!plan.replacements.count(rewrite->callee) &&
                 replacement(plan, rewrite->callee) == "stingy_" + rewrite->callee &&
                 !llvm::is_contained({"calloc", "realloc", "strdup", "strndup", "free"}, rewrite->callee))
            plan.refuse(*rewrite, "stingy has nothing in the place of " + rewrite->callee);
    }
    // Refusing one object may leave a site without a user, never add one.
    std::map<std::string, std::string> contents;
    for (auto &[key, rewrite] : wanted) {
        if (!plan.uses(*rewrite))
            continue;
        const Found &f = found.at(key);
        std::string id = f.is_in_macro_body ? "STINGY_ANY" : plan.id_of(*rewrite);
        bool is_good;
        if (f.is_whole_macro) {
            std::string text = rewrite->is_free ? f.casts + "stingy_free(" + id + ", " + f.pointer + ")"
                                                : f.casts + "stingy_alloc(" + id + ")";
            is_good = edits.add(f.file, f.name, {f.end - f.name, text});
        } else if (rewrite->callee == "malloc" && rewrite->is_fixed_size && f.is_constant &&
                   f.bytes == rewrite->bytes && id != "STINGY_ANY") {
            is_good = edits.add(f.file, f.name, {f.end - f.name, "stingy_alloc(" + id + ")"});
        } else {
            is_good = edits.add(f.file, f.name, {f.name_length, replacement(plan, rewrite->callee)}) &&
                      edits.add(f.file, f.after_parenthesis, {0, id + (f.has_arguments ? ", " : "")});
        }
        if (!is_good) {
            error = rewrite->file + ":" + std::to_string(rewrite->line) +
                    ": two changes overlap; name objects with --objects to rewrite one at a time";
            return false;
        }
        if (!contents.count(f.file)) {
            auto buffer = llvm::MemoryBuffer::getFile(f.file, false, false);
            if (!buffer) {
                error = f.file + ": " + buffer.getError().message();
                return false;
            }
            contents[f.file] = (*buffer)->getBuffer().str();
        }
    }
    for (auto &[file, text] : contents)
        edits.include(file, text, header);
    return true;
}

} // namespace stingy
