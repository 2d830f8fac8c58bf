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
    /// A function's frame and return address; 0 where the compiler made none (inlined everywhere).
    Frame find(const llvm::Function &function) const;
};

/// automatic: reports beside the object files where they are new, else the build's compiler is run. report: reports
/// alone. compile: the compiler. none: no frames; there is then no bound.
enum class FrameSource { automatic, report, compile, none };
Frames read_frames(const Program &program, FrameSource source, unsigned jobs, std::vector<Pointers::Warning> &doubts);

struct StackBound {
    uint64_t bytes = 0;
    std::vector<std::string> why_not, deepest; ///< why_not empty: it is a bound
};

/// For each stage: frames from the outermost caller to the deepest callee. Functions from outside of the program count
/// what the configuration sets. Recursion counts once and is named.
std::vector<StackBound> stack_bounds(const Calls &calls, const Config &config, const StageGraph &graph,
                                     const Frames &frames, std::vector<Pointers::Warning> &doubts);

} // namespace stingy
