// Reads annotations of the source into the same form as stingy.toml.
#pragma once
#include "input/config.h"
#include "input/facts.h"

namespace stingy {

/// Returns false if an annotation cannot be read or contradicts the configuration; `error` then names it and its
/// place.
bool apply_annotations(const Facts &facts, Config &config, std::string &error);

} // namespace stingy
