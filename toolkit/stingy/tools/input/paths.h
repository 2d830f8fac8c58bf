// Normalises file names, so that the syntax tree, the debug information and the compiler's reports agree.
#pragma once
#include <string>

namespace stingy {
/// Makes a path absolute, without `.` and `..`; symbolic links stay.
std::string absolute_path(const std::string &directory, const std::string &file);
/// Makes a path relative to `base` if it lies below it.
std::string shown_path(const std::string &base, const std::string &file);
} // namespace stingy
