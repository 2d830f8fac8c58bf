// Finds the calls of a plan in the syntax tree and turns them into edits.
#pragma once
#include "stingify/edits.h"
#include "stingify/plan.h"

namespace stingy {

/// Adds edits for every remaining rewrite. If some are not possible, refuses their objects and starts again. False:
/// `error` has the compiler's messages.
bool find_edits(const Program &program, const std::string &header, Plan &plan, Edits &edits, std::string &error);

} // namespace stingy
