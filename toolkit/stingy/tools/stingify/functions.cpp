#include "stingify/functions.h"
#include "input/paths.h"
#include "input/walk.h"
#include "pch.h"
#include "clang/Lex/Preprocessor.h"

using namespace clang;

namespace stingy {

bool is_library_allocator(const std::string &name) {
    return llvm::is_contained({"malloc", "calloc", "realloc", "strdup", "strndup"}, name);
}

namespace {

bool returns_first_argument(StringRef name) {
    return llvm::is_contained({"memcpy", "memmove", "memset", "strcpy", "strncpy", "strcat", "strncat"}, name);
}

/// Whether a function of the C library neither keeps a block nor queries malloc about it.
bool is_harmless(StringRef name) {
    name.consume_front("__builtin_");
    name.consume_front("__");
    name.consume_back("_chk");
    return returns_first_argument(name) ||
           llvm::is_contained({"bzero",    "explicit_bzero", "strlcpy",   "strlcat", "strlen",  "strcmp",
                               "snprintf", "sprintf",        "vsnprintf", "printf",  "fprintf", "fputs",
                               "puts",     "perror",         "syslog",    "err",     "errx",    "warn",
                               "warnx",    "exit",           "_exit",     "abort",   "mempcpy", "stpcpy",
                               "vsprintf", "vfprintf",       "dprintf"},
                              name);
}

/// Whether a function queries malloc about a block or returns it to malloc.
bool asks_malloc(StringRef name) {
    return llvm::is_contained({"malloc_usable_size", "reallocarray", "reallocf", "cfree", "free_sized",
                               "free_aligned_sized", "getline", "getdelim", "__getdelim"},
                              name);
}

/// Examines one function's body.
class Body : public Walk {
  public:
    Body(ASTContext &context, Preprocessor &preprocessor, const std::string &directory, const FunctionDecl &function,
         OwnFunction &own)
        : context(context), preprocessor(preprocessor), sources(context.getSourceManager()), directory(directory),
          function(function), own(own) {
        for (const ParmVarDecl *parameter : function.parameters())
            if (parameter->getType()->isPointerType())
                given.insert(parameter);
        is_finding = true;
        walk(function.getBody());
        for (size_t before = 0; before != blocks.size();) {
            before = blocks.size();
            walk(function.getBody()); // copies of the results
        }
        is_finding = false;
        walk(function.getBody());
    }

  private:
    void refuse(std::string &reason, SourceLocation at, const std::string &why) {
        if (reason.empty()) {
            PresumedLoc place = sources.getPresumedLoc(sources.getExpansionLoc(at));
            reason = absolute_path(directory, place.getFilename()) + ":" + std::to_string(place.getLine()) + ": " + why;
        }
    }

    static const VarDecl *variable_of(const Expr *value) {
        value = value->IgnoreParenCasts();
        if (const auto *assignment = dyn_cast<clang::BinaryOperator>(value); assignment && assignment->isAssignmentOp())
            value = assignment->getLHS()->IgnoreParenCasts();
        const auto *name = dyn_cast<DeclRefExpr>(value);
        const auto *variable = name ? dyn_cast<VarDecl>(name->getDecl()) : nullptr;
        return variable && variable->hasLocalStorage() ? variable : nullptr;
    }

    /// Whether the value of a call is only returned or kept in a variable of the function.
    bool is_block(const CallExpr &call) {
        DynTypedNode node = DynTypedNode::create(call);
        const Expr *from = &call;
        while (true) {
            auto parents = context.getParents(node);
            if (parents.empty())
                return false;
            node = parents[0];
            if (const auto *variable = node.get<VarDecl>()) {
                blocks.insert(variable);
                return variable->hasLocalStorage();
            }
            const auto *statement = node.get<Stmt>();
            if (!statement)
                return false;
            if (isa<ReturnStmt>(statement))
                return true;
            if (const auto *assignment = dyn_cast<clang::BinaryOperator>(statement)) {
                const VarDecl *variable = variable_of(assignment->getLHS());
                if (assignment->getOpcode() != BO_Assign || assignment->getRHS() != from || !variable)
                    return false;
                blocks.insert(variable);
                return true;
            }
            if (const auto *outer = dyn_cast<CallExpr>(statement)) {
                const FunctionDecl *callee = outer->getDirectCallee();
                if (!callee || !returns_first_argument(callee->getName()) || outer->getNumArgs() == 0 ||
                    outer->getArg(0) != from)
                    return false;
            } else if (const auto *choice = dyn_cast<ConditionalOperator>(statement)) {
                if (choice->getCond() == from)
                    return false;
            } else if (!isa<ParenExpr, CastExpr>(statement))
                return false;
            from = cast<Expr>(statement);
        }
    }

    void visit(Decl *decl) override {
        auto *variable = dyn_cast<VarDecl>(decl);
        if (!variable)
            return;
        if (variable->isStaticLocal())
            refuse(own.not_copied, variable->getLocation(), "it has a static variable, of which there would be two");
        if (variable->hasInit() && variable->hasLocalStorage())
            if (const VarDecl *other = variable_of(variable->getInit()); other && blocks.count(other))
                blocks.insert(variable);
    }

    void visit(Stmt *statement) override {
        if (auto *call = dyn_cast<CallExpr>(statement))
            is_finding ? find(*call) : check(*call);
        if (auto *assignment = dyn_cast<clang::BinaryOperator>(statement);
            assignment && assignment->getOpcode() == BO_Assign) {
            const VarDecl *to = variable_of(assignment->getLHS()), *from = variable_of(assignment->getRHS());
            if (to && from && blocks.count(from))
                blocks.insert(to);
        }
        if (auto *address = dyn_cast<clang::UnaryOperator>(statement);
            address && !is_finding && address->getOpcode() == UO_AddrOf)
            if (const VarDecl *variable = variable_of(address->getSubExpr()); variable && blocks.count(variable))
                refuse(own.not_copied, address->getBeginLoc(), "the address of its block's pointer is taken");
    }

    void find(CallExpr &call) {
        const FunctionDecl *callee = call.getDirectCallee();
        if (!callee)
            return;
        bool is_realloc = callee->getName() == "realloc", is_free = callee->getName() == "free";
        if ((is_realloc || is_free) && call.getNumArgs())
            if (const VarDecl *variable = variable_of(call.getArg(0)))
                blocks.insert(variable);
        if (is_library_allocator(callee->getName().str()) || is_own_allocation(*callee))
            is_block(call);
    }

    /// A function of the program that returns a pointer allocates if the value is what this one returns.
    static bool is_own_allocation(const FunctionDecl &callee) {
        return callee.getReturnType()->isPointerType() && !returns_first_argument(callee.getName()) &&
               !callee.getASTContext().getSourceManager().isInSystemHeader(callee.getLocation()) &&
               !callee.getBuiltinID();
    }

    void check(CallExpr &call) {
        const FunctionDecl *callee = call.getDirectCallee();
        std::string name = callee ? callee->getName().str() : "a function by its address";
        if (callee && is_library_allocator(name)) {
            if (!is_block(call))
                refuse(own.not_copied, call.getBeginLoc(), "it keeps a block of " + name + " elsewhere");
            take(call, *callee, own.allocations, "");
            return;
        }
        if (name == "free") {
            take(call, *callee, own.frees, "");
            return;
        }
        if (callee && is_own_allocation(*callee) && is_block(call)) {
            take(call, *callee, own.allocations, key_of(*callee, directory));
            return;
        }
        if (callee && is_harmless(name))
            return;
        for (const Expr *argument : call.arguments()) {
            const VarDecl *variable = variable_of(argument);
            if (!variable)
                continue;
            if (blocks.count(variable))
                refuse(own.not_copied, call.getBeginLoc(), "it hands the block to " + name);
            if (!given.count(variable))
                continue;
            if (asks_malloc(name))
                refuse(own.not_changed, call.getBeginLoc(), name + " takes blocks of malloc alone");
            else if (callee && !sources.isInSystemHeader(callee->getLocation()))
                own.frees_by.insert(key_of(*callee, directory));
        }
    }

    void take(const CallExpr &call, const FunctionDecl &callee, std::vector<BodyCall> &into, const std::string &key) {
        SourceLocation begin = call.getBeginLoc(), end = call.getRParenLoc();
        BodyCall one;
        one.callee = callee.getName().str(), one.key = key;
        one.has_arguments = call.getNumArgs() > 0;
        std::string written = one.callee;
        if (is_another_name(preprocessor, begin) && end.isFileID()) {
            written = Lexer::getImmediateMacroName(begin, sources, context.getLangOpts()).str();
            begin = sources.getExpansionLoc(begin);
        }
        auto [file, offset] = sources.getDecomposedLoc(begin);
        bool is_plain = begin.isFileID() && end.isFileID() && sources.getFileID(end) == file &&
                        file == sources.getFileID(function.getLocation());
        if (is_plain) {
            StringRef text = sources.getBufferData(file);
            one.name = offset, one.name_length = Lexer::MeasureTokenLength(begin, sources, context.getLangOpts());
            one.close = sources.getDecomposedLoc(end).second;
            one.open = text.find('(', offset + one.name_length) + 1;
            is_plain = text.substr(offset, one.name_length) == written &&
                       text.slice(offset + one.name_length, one.open - 1).trim().empty();
        }
        FileID here = sources.getFileID(function.getLocation());
        if (begin.isMacroID() && sources.getFileID(sources.getExpansionLoc(begin)) == here &&
            is_whole_macro(context, call)) {
            one.expansion = expand(preprocessor, call);
            is_plain = one.is_whole_macro = one.expansion.problem.empty();
            one.name = one.expansion.from, one.name_length = one.expansion.end - one.expansion.from;
        }
        if (!is_plain) {
            const std::string why = "its call of " + one.callee + " is written by a macro";
            refuse(own.not_copied, begin, why);
            if (&into == &own.frees)
                refuse(own.not_changed, begin, why);
        } else
            into.push_back(one);
    }

    ASTContext &context;
    Preprocessor &preprocessor;
    SourceManager &sources;
    const std::string &directory;
    const FunctionDecl &function;
    OwnFunction &own;
    std::set<const VarDecl *> blocks, given; ///< variables with what is allocated, resized or freed; parameters
    bool is_finding;
};

class Reader : public Walk {
  public:
    Reader(ASTContext &context, Preprocessor &preprocessor, const std::string &directory, OwnFunctions &functions)
        : context(context), preprocessor(preprocessor), sources(context.getSourceManager()), directory(directory),
          functions(functions) {}

  private:
    void visit(Decl *decl) override {
        auto *function = dyn_cast<FunctionDecl>(decl);
        if (!function || !function->getIdentifier() || sources.isInSystemHeader(function->getLocation()) ||
            sources.getFilename(sources.getExpansionLoc(function->getLocation())).empty())
            return;
        OwnFunction &own = functions[key_of(*function, directory)];
        own.name = function->getName().str();
        own.is_internal = function->getFormalLinkage() == Linkage::Internal;
        Declared declared;
        std::string why = place(*function, declared);
        if (!why.empty()) {
            PresumedLoc at = sources.getPresumedLoc(sources.getExpansionLoc(function->getLocation()));
            if (own.not_copied.empty())
                own.not_copied =
                    absolute_path(directory, at.getFilename()) + ":" + std::to_string(at.getLine()) + ": " + why;
            own.is_defined |= function->doesThisDeclarationHaveABody();
            return;
        }
        bool is_new = own.declarations.insert(declared).second;
        if (!declared.is_definition || !is_new)
            return;
        own.is_defined = true;
        Body(context, preprocessor, directory, *function, own);
    }

    void visit(Stmt *statement) override {
        auto *name = dyn_cast<DeclRefExpr>(statement);
        auto *function = name ? dyn_cast<FunctionDecl>(name->getDecl()) : nullptr;
        if (!function || function->getFormalLinkage() != Linkage::Internal)
            return;
        auto [file, offset] = sources.getDecomposedLoc(sources.getExpansionLoc(name->getLocation()));
        if (auto entry = sources.getFileEntryRefForID(file))
            functions[key_of(*function, directory)].uses.insert(
                {absolute_path(directory, entry->getName().str()), offset});
    }

    /// Returns why the text cannot be rewritten, or an empty text.
    std::string place(const FunctionDecl &function, Declared &declared) {
        FunctionTypeLoc type = function.getFunctionTypeLoc();
        if (!type || !function.hasWrittenPrototype() || function.isVariadic() || function.getNumParams() == 0)
            return "it is not declared with parameters as C11 has them";
        SourceLocation begin = function.getBeginLoc(), end = function.getEndLoc(), name = function.getLocation(),
                       close = type.getRParenLoc();
        // A word such as PRIVATE may be a macro.
        if (begin.isMacroID() && Lexer::isAtStartOfMacroExpansion(begin, sources, context.getLangOpts(), &begin))
            begin = sources.getExpansionLoc(begin);
        FileID file = sources.getFileID(name);
        if (begin.isMacroID() || end.isMacroID() || name.isMacroID() || close.isMacroID() ||
            sources.getFileID(begin) != file || sources.getFileID(end) != file || sources.getFileID(close) != file)
            return "its declaration is written by a macro";
        StringRef text = sources.getBufferData(file);
        declared.file = absolute_path(directory, sources.getFilename(name).str());
        declared.begin = sources.getFileOffset(begin), declared.name = sources.getFileOffset(name),
        declared.close = sources.getFileOffset(close);
        declared.end = sources.getFileOffset(end) + Lexer::MeasureTokenLength(end, sources, context.getLangOpts());
        declared.is_definition = function.doesThisDeclarationHaveABody();
        if (text.substr(declared.name, function.getName().size()) != function.getName())
            return "its name is written by a macro";
        if (!declared.is_definition) {
            size_t semicolon = text.find(';', declared.end);
            if (semicolon == StringRef::npos)
                return "its declaration has no end";
            declared.end = semicolon + 1;
        }
        return "";
    }

    ASTContext &context;
    Preprocessor &preprocessor;
    SourceManager &sources;
    const std::string &directory;
    OwnFunctions &functions;
};

std::string why_not(const OwnFunctions &functions, const std::string &key, bool is_copy, std::set<std::string> &seen) {
    if (!seen.insert(key).second)
        return "";
    auto found = functions.find(key);
    if (found == functions.end() || !found->second.is_defined)
        return (found == functions.end() ? key : found->second.name) + " is not defined in the program's units";
    const OwnFunction &own = found->second;
    const std::string &why = is_copy ? own.not_copied : own.not_changed;
    if (!why.empty())
        return why + " (in " + own.name + ")";
    if (is_copy) {
        for (const BodyCall &call : own.allocations)
            if (!call.key.empty())
                if (std::string inner = why_not(functions, call.key, true, seen); !inner.empty())
                    return inner;
        return own.allocations.empty() ? "no call of malloc is seen in " + own.name : "";
    }
    for (const std::string &other : own.frees_by)
        if (auto known = functions.find(other); known != functions.end() && known->second.is_defined)
            if (std::string inner = why_not(functions, other, false, seen); !inner.empty())
                return inner;
    return "";
}

} // namespace

std::string key_of(const FunctionDecl &function, const std::string &directory) {
    std::string name = function.getName().str();
    if (function.getFormalLinkage() != Linkage::Internal)
        return name;
    const FunctionDecl *definition = function.getDefinition();
    const SourceManager &sources = function.getASTContext().getSourceManager();
    SourceLocation at = sources.getExpansionLoc((definition ? definition : &function)->getLocation());
    return name + "@" + absolute_path(directory, sources.getFilename(at).str());
}

void read_functions(ASTContext &context, Preprocessor &preprocessor, const std::string &directory,
                    OwnFunctions &functions) {
    Reader(context, preprocessor, directory, functions).walk(context.getTranslationUnitDecl());
}

std::string why_not_copied(const OwnFunctions &functions, const std::string &key) {
    std::set<std::string> seen;
    return why_not(functions, key, true, seen);
}

std::string why_not_changed(const OwnFunctions &functions, const std::string &key) {
    std::set<std::string> seen;
    return why_not(functions, key, false, seen);
}

} // namespace stingy
