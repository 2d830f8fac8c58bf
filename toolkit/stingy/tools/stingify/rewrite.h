// Finds the calls of a plan in the syntax tree and makes edits from them.
#pragma once
#include "stingify/edits.h"
#include "stingify/plan.h"

namespace stingy {

/// Adds edits for every remaining rewrite. If some are not possible, refuses their objects and starts again. Returns
/// false on failure; `error` then has the compiler's messages.
bool find_edits(const Program &program, const std::string &header, Plan &plan, Edits &edits, std::string &error);

} // namespace stingy
