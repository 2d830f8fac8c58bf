// Names of files, so that the syntax tree's, the debug information's and the compiler's reports agree.
#pragma once
#include <string>

namespace stingy {
/// Absolute, without `.` and `..`; symbolic links stay.
std::string absolute_path(const std::string &directory, const std::string &file);
/// Relative to `base` if it lies below it, else as it is.
std::string shown_path(const std::string &base, const std::string &file);
} // namespace stingy
