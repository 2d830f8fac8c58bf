// A macro's use, written out: what the preprocessor makes of it, one level deep, in the words of the source.
#pragma once
#include <string>

namespace clang {
class ASTContext;
class CallExpr;
class Preprocessor;
class SourceLocation;
} // namespace clang

namespace stingy {

/// The text of a use of a macro around one call: before + name + open + arguments + close.
struct Expansion {
    std::string before, name, open, arguments, close;
    unsigned from = 0, end = 0; ///< offsets of the use in its file
    std::string problem;        ///< why it cannot be written out
};

/// Whether the use of a macro within which the call stands is nothing but the call, with casts and parentheses around
/// it.
bool is_whole_macro(clang::ASTContext &context, const clang::CallExpr &call);
/// Whether a name is written by a macro that is nothing but another name of it: `#define xalloc malloc`.
bool is_another_name(clang::Preprocessor &preprocessor, clang::SourceLocation name);
/// Writes out the use within which the call stands. What macros its words name in their turn stay as they are.
Expansion expand(clang::Preprocessor &preprocessor, const clang::CallExpr &call);

} // namespace stingy
