// Annotations of the source, read into the same form as stingy.toml.
#pragma once
#include "input/config.h"
#include "input/facts.h"

namespace stingy {

/// False: `error` says which annotation cannot be read, or contradicts the configuration, and where.
bool apply_annotations(const Facts &facts, Config &config, std::string &error);

} // namespace stingy
