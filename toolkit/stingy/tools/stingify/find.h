// Finds the calls of a plan in the syntax tree.
#pragma once
#include "stingify/functions.h"
#include "stingify/plan.h"

namespace stingy {

/// A call: file, line, column, and the function that is called.
using Key = std::tuple<std::string, unsigned, unsigned, std::string>;

/// The change of one call, independent of its object.
struct Found {
    std::string file; ///< where the edit goes: a macro's definition may be elsewhere
    unsigned name = 0, name_length = 0, open = 0, close = 0; ///< offsets; open: behind `(`; close: of `)`
    bool has_arguments = false;
    bool is_whole_macro = false;   ///< the macro's use is written out
    bool is_in_macro_body = false; ///< the macro's definition is changed, for all its uses
    Expansion expansion;           ///< of a whole macro
    std::string function;          ///< the server's own function that is called, as a key; empty: the C library's
    std::string problem;
};

/// Reads a unit: adds the wanted calls that were found, and, unless null, the program's own functions. Returns false
/// on failure; `error` then has the compiler's messages.
bool find_calls(const Unit &unit, const std::map<Key, const Rewrite *> &wanted, std::map<Key, Found> &found,
                OwnFunctions *functions, std::string &error);

} // namespace stingy
