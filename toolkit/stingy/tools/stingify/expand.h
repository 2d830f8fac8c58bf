// Expands the use of a macro one level deep, with the text of the source.
#pragma once
#include <string>

namespace clang {
class ASTContext;
class CallExpr;
class Preprocessor;
class SourceLocation;
} // namespace clang

namespace stingy {

/// The text of a macro's use around one call: before + name + open + arguments + close.
struct Expansion {
    std::string before, name, open, arguments, close;
    unsigned from = 0, end = 0; ///< offsets of the use in its file
    std::string problem;        ///< why it cannot be written out
};

/// Whether the use of a macro that contains the call is only the call, with casts and parentheses around it.
bool is_whole_macro(clang::ASTContext &context, const clang::CallExpr &call);
/// Whether a name comes from a macro that is only another name for it: `#define xalloc malloc`.
bool is_another_name(clang::Preprocessor &preprocessor, clang::SourceLocation name);
/// Expands the use that contains the call. Macros in the result are not expanded.
Expansion expand(clang::Preprocessor &preprocessor, const clang::CallExpr &call);

} // namespace stingy
