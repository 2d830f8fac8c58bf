// Finds the part of a function that runs for one value of the state.
#pragma once
#include "memwalk/state_field.h"
#include "llvm/ADT/SetVector.h"

namespace stingy {

/// Adds the blocks that a test leads to for `value`: from the test's target to the place where its branches meet
/// again, or back to the test or to the loop around it. On the way, other tests of the state are followed only for
/// that value; the code after a change of the state belongs to the new stage if a test shows it, otherwise to this
/// one. `starts`: the blocks that are entered.
void add_region(const std::vector<StateTest> &tests, const StateTest &test, int64_t value,
                llvm::SetVector<const llvm::BasicBlock *> &blocks, std::set<const llvm::BasicBlock *> &starts);

} // namespace stingy
