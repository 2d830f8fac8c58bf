// The server's functions that allocate and free: the purpose of a call of malloc in them, and whether a copy that
// also takes an object can be made.
#pragma once
#include "stingify/expand.h"
#include <map>
#include <set>
#include <string>
#include <vector>

namespace clang {
class FunctionDecl;
} // namespace clang

namespace stingy {

/// Whether stingy_X replaces a function X of the C library, with the object as first argument. stingy_free and
/// stingy_realloc accept any block.
bool is_library_allocator(const std::string &name);

/// A call in a function's body: plain text of its file, or the use of a macro that is only the call.
struct BodyCall {
    std::string callee, key;                                 ///< key: of OwnFunctions; empty for the C library's
    unsigned name = 0, name_length = 0, open = 0, close = 0; ///< offsets; open: behind `(`; close: of `)`
    bool has_arguments = true, is_whole_macro = false;
    Expansion expansion; ///< of a macro
};

/// The place of a function's declaration or definition, as offsets.
struct Declared {
    std::string file;
    unsigned begin = 0, name = 0, close = 0, end = 0; ///< close: of the parameters' `)`; end: behind `;` or `}`
    bool is_definition = false;
    bool operator<(const Declared &o) const { return std::tie(file, begin) < std::tie(o.file, o.begin); }
};

struct OwnFunction {
    std::string name;
    bool is_internal = false, is_defined = false;
    std::set<Declared> declarations;
    std::vector<BodyCall> allocations, frees;
    std::set<std::string> frees_by;                  ///< functions to which it hands what it was given, by key
    std::string not_copied;                          ///< why it cannot be made anew for an object: place and reason
    std::string not_changed;                         ///< why its calls of free cannot be changed where they stand
    std::set<std::pair<std::string, unsigned>> uses; ///< file and offset of each mention; of internal ones alone
};

using OwnFunctions = std::map<std::string, OwnFunction>;

/// Returns a function's key: its name, and for an internal one the file of its definition.
std::string key_of(const clang::FunctionDecl &function, const std::string &directory);
/// Adds the functions of a unit.
void read_functions(clang::ASTContext &context, clang::Preprocessor &preprocessor, const std::string &directory,
                    OwnFunctions &functions);
/// Returns why this function, with those that it uses to allocate, cannot be copied for an object, or an empty text.
std::string why_not_copied(const OwnFunctions &functions, const std::string &key);
/// Returns why its calls of free cannot be replaced by calls of stingy_free, or an empty text.
std::string why_not_changed(const OwnFunctions &functions, const std::string &key);

} // namespace stingy
