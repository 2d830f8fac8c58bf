// Finds tests of a request's state in the code, and guesses the field that holds it.
#pragma once
#include "memwalk/calls.h"
#include <map>

namespace stingy {

/// A switch or comparison on the state, at the end of a block.
struct StateTest {
    const llvm::BasicBlock *block;
    std::map<int64_t, const llvm::BasicBlock *> when; ///< where it goes for these values
    const llvm::BasicBlock *otherwise;                ///< and for all others
    bool is_switch;
    bool is_dispatch = true; ///< false: in a function that tests only one value and then changes the state
};

struct StateField {
    Cell cell;
    bool is_function = false;
    std::vector<std::string> others; ///< fields that look alike
};

/// Finds tests of a field in functions that choose code by it: a switch with at least two cases, or comparisons with
/// at least two constants that have separate code. A guard (`if (state != PAUSING)`) chooses nothing. `only`:
/// searches only this function.
std::vector<StateTest> state_tests(const Calls &calls, const Cell &state, const llvm::Function *only);
/// Finds tests of a parameter.
std::vector<StateTest> argument_tests(const llvm::Function &function, unsigned parameter);

/// Returns the field from which a value was loaded, through casts; a parameter counts if a caller passes the field.
bool field_of(const Calls &calls, const llvm::Value *value, Cell &cell);

bool guess_state_field(const Program &program, const Calls &calls, StateField &guess);

} // namespace stingy
