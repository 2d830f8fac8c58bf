#include "memwalk/regions.h"
#include "pch.h"

using namespace llvm;

namespace stingy {
namespace {

/// Returns the blocks from which a function returns or continues; blocks that only end the program do not.
std::set<const BasicBlock *> reachable(const BasicBlock *from, const std::set<const BasicBlock *> &stop) {
    std::set<const BasicBlock *> seen;
    std::vector<const BasicBlock *> work{from};
    while (!work.empty()) {
        const BasicBlock *block = work.back();
        work.pop_back();
        if (stop.count(block) || !seen.insert(block).second)
            continue;
        for (const BasicBlock *next : successors(block))
            work.push_back(next);
    }
    return seen;
}

bool ends_program(const BasicBlock *block) {
    return isa<UnreachableInst>(block->getTerminator());
}

struct Frame {
    const BasicBlock *meeting = nullptr;  ///< where all branches of the test meet again
    std::set<const BasicBlock *> borders; ///< the test itself, the head of the loop around it
};

Frame frame_of(const StateTest &test) {
    static std::map<const BasicBlock *, Frame> known;
    auto found = known.find(test.block);
    if (found != known.end())
        return found->second;
    Frame frame;
    frame.borders.insert(test.block);
    auto *function = const_cast<Function *>(test.block->getParent());
    DominatorTree dominators(*function);
    LoopInfo loops(dominators);
    if (const Loop *loop = loops.getLoopFor(test.block))
        frame.borders.insert(loop->getHeader());
    // Finds the nearest block on every path from the test, except paths that end the program.
    SetVector<const BasicBlock *> targets;
    for (const BasicBlock *next : successors(test.block))
        targets.insert(next);
    std::vector<const BasicBlock *> candidates;
    auto from_test = reachable(test.block, {});
    for (const BasicBlock &block : *function)
        if (&block != test.block && from_test.count(&block))
            candidates.push_back(&block);
    auto passes = [&](const BasicBlock *meeting) {
        for (const BasicBlock *target : targets) {
            if (target == meeting)
                continue;
            for (const BasicBlock *block : reachable(target, {meeting})) {
                if (frame.borders.count(block))
                    return false;
                if (succ_empty(block) && !ends_program(block))
                    return false;
            }
        }
        return true;
    };
    // In large functions candidates must be reachable from every target that does not end the program at once.
    const BasicBlock *best = nullptr;
    std::set<const BasicBlock *> before_best;
    PostDominatorTree post(*function);
    if (auto *node = post.getNode(const_cast<BasicBlock *>(test.block));
        node && node->getIDom() && node->getIDom()->getBlock())
        best = node->getIDom()->getBlock();
    if (!best && candidates.size() <= 600)
        for (const BasicBlock *candidate : candidates)
            if (passes(candidate)) {
                auto without = reachable(test.block, {candidate});
                if (!best || without.size() < before_best.size())
                    best = candidate, before_best = without;
            }
    // One case may be the block that the others reach in the end.
    for (auto &[value, target] : test.when)
        if (target == best)
            best = nullptr;
    frame.meeting = best;
    return known[test.block] = frame;
}

} // namespace

void add_region(const std::vector<StateTest> &tests, const StateTest &test, int64_t value,
                SetVector<const BasicBlock *> &blocks, std::set<const BasicBlock *> &starts) {
    Frame frame = frame_of(test);
    auto own = test.when.find(value);
    const BasicBlock *first = own != test.when.end() ? own->second : test.otherwise;
    // The code for all other values belongs to a stage only if the paths meet again; otherwise it is the rest of the
    // function.
    if (own == test.when.end() && (!frame.meeting || first == frame.meeting))
        return;
    if (own == test.when.end() && ends_program(first))
        return;
    std::map<const BasicBlock *, const StateTest *> test_at;
    for (const StateTest &other : tests)
        test_at[other.block] = &other;
    starts.insert(first);
    std::set<const BasicBlock *> seen;
    std::vector<const BasicBlock *> work{first};
    while (!work.empty()) {
        const BasicBlock *block = work.back();
        work.pop_back();
        if (block == frame.meeting || frame.borders.count(block) || !seen.insert(block).second)
            continue;
        blocks.insert(block);
        auto other = test_at.find(block);
        if (other == test_at.end()) {
            for (const BasicBlock *next : successors(block))
                work.push_back(next);
            continue;
        }
        // The value may have changed since; then the other branch of a single comparison also runs.
        auto goes = other->second->when.find(value);
        if (goes != other->second->when.end())
            work.push_back(goes->second);
        if (goes == other->second->when.end() || !other->second->is_switch)
            work.push_back(other->second->otherwise);
    }
}

} // namespace stingy
