// Annotations of the source, read into the same form as stingy.toml.
#pragma once
#include "input/config.h"
#include "input/facts.h"

namespace stingy {

/// False: `error` names the annotation that cannot be read, or that contradicts the configuration, and its place.
bool apply_annotations(const Facts &facts, Config &config, std::string &error);

} // namespace stingy
