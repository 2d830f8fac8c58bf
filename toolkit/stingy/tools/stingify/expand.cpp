#include "stingify/expand.h"
#include "pch.h"
#include "clang/Lex/MacroArgs.h"
#include "clang/Lex/Preprocessor.h"

using namespace clang;

namespace stingy {
namespace {

/// Splits a use's arguments, as written, at the commas outside of parentheses, without comments around them. Returns
/// false if the use has no parentheses, or preprocessor lines in them.
bool arguments_of(StringRef text, unsigned at, const LangOptions &options, SourceLocation begin,
                  std::vector<std::string> &arguments, unsigned &end) {
    Lexer lexer(begin, options, text.data(), text.data() + at, text.data() + text.size());
    Token token;
    lexer.LexFromRawLexer(token);
    if (token.isNot(tok::l_paren))
        return false;
    unsigned depth = 1, from = 0, to = 0; // the argument so far; to: 0 if it has no token yet
    while (depth) {
        lexer.LexFromRawLexer(token);
        if (token.is(tok::eof) || (token.is(tok::hash) && token.isAtStartOfLine()))
            return false;
        end = lexer.getBufferLocation() - text.data();
        depth += token.is(tok::l_paren);
        depth -= token.is(tok::r_paren);
        if ((depth == 1 && token.is(tok::comma)) || depth == 0) {
            arguments.push_back(text.slice(from, to).str());
            to = 0;
            continue;
        }
        if (!to)
            from = end - token.getLength();
        to = end;
    }
    return true;
}

} // namespace

bool is_whole_macro(ASTContext &context, const CallExpr &call) {
    const SourceManager &sources = context.getSourceManager();
    SourceLocation start = call.getBeginLoc();
    const Expr *outer = &call;
    DynTypedNode node = DynTypedNode::create(call);
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
        outer = parent;
        node = parents[0];
    }
    SourceLocation first, last;
    if (!Lexer::isAtStartOfMacroExpansion(outer->getBeginLoc(), sources, context.getLangOpts(), &first) ||
        !Lexer::isAtEndOfMacroExpansion(outer->getEndLoc(), sources, context.getLangOpts(), &last))
        return false;
    CharSourceRange range = sources.getExpansionRange(start);
    SourceLocation from = range.getBegin(), to = range.getEnd();
    return first == from && from.isFileID() && to.isFileID() && sources.getFileID(from) == sources.getFileID(to);
}

bool is_another_name(Preprocessor &preprocessor, SourceLocation name) {
    const SourceManager &sources = preprocessor.getSourceManager();
    if (!name.isMacroID() || !sources.getImmediateExpansionRange(name).getBegin().isFileID())
        return false;
    StringRef word = Lexer::getImmediateMacroName(name, sources, preprocessor.getLangOpts());
    MacroInfo *macro =
        preprocessor.getMacroDefinitionAtLoc(preprocessor.getIdentifierInfo(word), sources.getExpansionLoc(name))
            .getMacroInfo();
    return macro && macro->isObjectLike() && macro->getNumTokens() == 1;
}

Expansion expand(Preprocessor &preprocessor, const CallExpr &call) {
    const SourceManager &sources = preprocessor.getSourceManager();
    const LangOptions &options = preprocessor.getLangOpts();
    Expansion out;
    SourceLocation begin = call.getBeginLoc(), close = call.getRParenLoc();
    SourceLocation use = sources.getExpansionLoc(begin);
    auto [file, offset] = sources.getDecomposedLoc(use);
    StringRef text = sources.getBufferData(file);
    unsigned length = Lexer::MeasureTokenLength(use, sources, options);
    StringRef name = text.substr(offset, length);
    MacroInfo *macro = preprocessor.getMacroDefinitionAtLoc(preprocessor.getIdentifierInfo(name), use).getMacroInfo();
    if (!macro || sources.getImmediateExpansionRange(begin).getBegin() != use ||
        sources.getImmediateExpansionRange(close).getBegin() != use) {
        out.problem = "the call is put together from pieces of macros";
        return out;
    }
    out.from = offset, out.end = offset + length;
    std::vector<std::string> arguments;
    if (macro->isFunctionLike() &&
        (!arguments_of(text, offset + length, options, sources.getLocForStartOfFile(file), arguments, out.end) ||
         macro->isVariadic() || arguments.size() != macro->getNumParams())) {
        if (macro->isVariadic() || macro->getNumParams() != 0)
            out.problem = "the macro " + name.str() + " takes its arguments in a way that cannot be written out";
    }
    SourceLocation name_token = sources.getSpellingLoc(begin), close_token = sources.getSpellingLoc(close);
    std::string *into = &out.before;
    bool is_opened = false;
    for (const Token &token : macro->tokens()) {
        if (token.isOneOf(tok::hash, tok::hashhash))
            out.problem = "the macro " + name.str() + " pastes words together";
        if (token.getLocation() == close_token)
            into = &out.close;
        std::string word = preprocessor.getSpelling(token);
        if (token.hasLeadingSpace() && !(into == &out.before && out.before.empty()))
            *into += ' ';
        if (token.getLocation() == name_token) {
            out.name = word;
            into = &out.open;
            continue;
        }
        int parameter = token.getIdentifierInfo() ? macro->getParameterNum(token.getIdentifierInfo()) : -1;
        *into += parameter >= 0 && unsigned(parameter) < arguments.size() ? arguments[parameter] : word;
        if (into == &out.open && !is_opened && token.is(tok::l_paren)) {
            is_opened = true;
            into = &out.arguments;
        }
    }
    if (out.problem.empty() && (out.name.empty() || !is_opened || into != &out.close))
        out.problem = "the call is put together from pieces of macros";
    return out;
}

} // namespace stingy
