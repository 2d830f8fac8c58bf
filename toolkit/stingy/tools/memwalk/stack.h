// Bounds the depth of the stack at each stage.
#pragma once
#include "memwalk/stages.h"

namespace stingy {

struct Frames {
    struct Frame {
        uint64_t bytes = 0;
        bool is_dynamic = false;
    };
    std::map<std::pair<std::string, std::string>, Frame> of; ///< file and function
    std::string origin;                                      ///< in words, for the output
    unsigned units = 0;                                      ///< with a report
    /// Returns a function's frame with its return address; 0 if the compiler made none (inlined everywhere).
    Frame find(const llvm::Function &function) const;
};

/// automatic: reports next to the object files if these are new, otherwise the build's compiler is
/// run. report: only reports. compile: only the compiler. none: no frames, so there is no bound.
enum class FrameSource { automatic, report, compile, none };
Frames read_frames(const Program &program, FrameSource source, unsigned jobs, std::vector<Pointers::Warning> &doubts);

struct StackBound {
    uint64_t bytes = 0;
    std::vector<std::string> why_not, deepest; ///< why_not empty: it is a bound
};

/// Adds the frames from the outermost caller to the deepest callee for each stage. Functions from outside the program
/// count as the configuration says. Recursion counts once and is named.
std::vector<StackBound> stack_bounds(const Calls &calls, const Config &config, const StageGraph &graph,
                                     const Frames &frames, std::vector<Pointers::Warning> &doubts);

} // namespace stingy
