// Finds the part of a function that runs for one value of the state.
#pragma once
#include "memwalk/state_field.h"
#include "llvm/ADT/SetVector.h"

namespace stingy {

/// Adds the blocks that a test leads to for `value`: from where the test goes, up to where its branches meet again,
/// back to the test or to the loop around it. On the way, other tests of the state are followed only as that value
/// goes; the code after a change of the state belongs to the new stage if a test shows it, otherwise to this one.
/// `starts`: where it is entered.
void add_region(const std::vector<StateTest> &tests, const StateTest &test, int64_t value,
                llvm::SetVector<const llvm::BasicBlock *> &blocks, std::set<const llvm::BasicBlock *> &starts);

} // namespace stingy
