#include "memwalk/stack.h"
#include "pch.h"

using namespace llvm;

namespace stingy {
namespace {

struct Depth {
    uint64_t bytes = 0;
    const Function *next = nullptr;
};

class Depths {
  public:
    Depths(const Calls &calls, const Config &config, const Frames &frames)
        : calls(calls), config(config), frames(frames) {
        find_components();
    }

    uint64_t frame(const Function &function) const {
        if (!function.isDeclaration())
            return frames.find(function).bytes;
        if (function.isIntrinsic())
            return 0;
        auto told = config.external_stack.find(function.getName().str());
        return told == config.external_stack.end() ? config.external_bytes : told->second;
    }

    /// The depth from a function's own frame to the deepest callee.
    const Depth &down(const Function &function) {
        return deepest(function, below, [&](const Function &f) { return calls.callees(f); });
    }

    /// The depth from the outermost caller to a function, without its own frame.
    Depth up(const Function &function) {
        const Depth &whole = deepest(function, above, [&](const Function &f) {
            Functions callers;
            for (const CallBase *call : calls.callers(f))
                callers.push_back(const_cast<Function *>(call->getFunction()));
            return callers;
        });
        return {whole.bytes - frame(function), whole.next};
    }

    bool is_recursive(const Function &function) const {
        auto found = component.find(&function);
        return found != component.end() && (size[found->second] > 1 || calls_itself(function));
    }
    unsigned component_of(const Function &function) const { return component.at(&function); }

  private:
    bool calls_itself(const Function &function) const { return is_contained(calls.callees(function), &function); }

    /// Finds the longest chain; a component of mutual recursion counts each of its functions once.
    template <typename Next>
    const Depth &deepest(const Function &function, std::map<const Function *, Depth> &memo, const Next &next) {
        auto known = memo.find(&function);
        if (known != memo.end())
            return known->second;
        unsigned group = component.at(&function);
        std::vector<const Function *> members = members_of[group];
        uint64_t own = 0;
        for (const Function *member : members)
            own += frame(*member);
        Depth best;
        for (const Function *member : members)
            for (const Function *other : next(*member)) {
                if (component.at(other) == group)
                    continue;
                Depth depth = deepest(*other, memo, next);
                if (depth.bytes > best.bytes)
                    best = {depth.bytes, other};
            }
        for (const Function *member : members)
            memo[member] = {own + best.bytes, best.next};
        return memo[&function];
    }

    /// Finds strongly connected components (Tarjan) without recursion.
    void find_components() {
        struct Visit {
            const Function *function;
            size_t child;
        };
        std::map<const Function *, unsigned> index, low;
        std::vector<const Function *> stack;
        std::set<const Function *> on_stack;
        unsigned next = 0;
        for (const Function &root : calls.module) {
            if (index.count(&root))
                continue;
            std::vector<Visit> visits{{&root, 0}};
            while (!visits.empty()) {
                const Function *function = visits.back().function;
                if (visits.back().child == 0)
                    index[function] = low[function] = next++, stack.push_back(function), on_stack.insert(function);
                const Functions &callees = calls.callees(*function);
                bool is_deeper = false;
                while (visits.back().child < callees.size()) {
                    const Function *callee = callees[visits.back().child++];
                    if (!index.count(callee)) {
                        visits.push_back({callee, 0});
                        is_deeper = true;
                        break;
                    }
                    if (on_stack.count(callee))
                        low[function] = std::min(low[function], index[callee]);
                }
                if (is_deeper)
                    continue;
                if (low[function] == index[function]) {
                    std::vector<const Function *> members;
                    const Function *member;
                    do {
                        member = stack.back();
                        stack.pop_back();
                        on_stack.erase(member);
                        component[member] = members_of.size();
                        members.push_back(member);
                    } while (member != function);
                    size.push_back(members.size());
                    members_of.push_back(members);
                }
                visits.pop_back();
                if (!visits.empty())
                    low[visits.back().function] = std::min(low[visits.back().function], low[function]);
            }
        }
    }

    const Calls &calls;
    const Config &config;
    const Frames &frames;
    std::map<const Function *, Depth> below, above;
    std::map<const Function *, unsigned> component;
    std::vector<std::vector<const Function *>> members_of;
    std::vector<size_t> size;
};

} // namespace

std::vector<StackBound> stack_bounds(const Calls &calls, const Config &config, const StageGraph &graph,
                                     const Frames &frames, std::vector<Pointers::Warning> &doubts) {
    Depths depths(calls, config, frames);
    std::vector<StackBound> bounds;
    std::set<std::string> outside;
    // Callbacks of the event loop run below the function that runs the loop.
    uint64_t loop_bytes = 0;
    const Function *loop_caller = nullptr;
    for (const Function &function : calls.module)
        if (function.isDeclaration() &&
            (function.getName().contains("event_loop") || function.getName().contains("event_base_loop") ||
             function.getName().contains("_dispatch") || function.getName() == "ev_run"))
            for (const CallBase *call : calls.callers(function)) {
                Depth depth = depths.up(*call->getFunction());
                uint64_t bytes = depth.bytes + depths.frame(*call->getFunction()) + depths.frame(function);
                if (bytes > loop_bytes)
                    loop_bytes = bytes, loop_caller = call->getFunction();
            }
    for (const Stage &stage : graph.stages) {
        StackBound bound;
        const Function *start = stage.function ? stage.function : stage.dispatcher;
        std::vector<const Function *> starts;
        if (start)
            starts.push_back(start);
        for (const BasicBlock *block : stage.blocks)
            if (!is_contained(starts, block->getParent()))
                starts.push_back(block->getParent());
        uint64_t most = 0;
        for (const Function *function : starts) {
            Depth above = depths.up(*function);
            std::vector<std::string> chain;
            for (const Function *caller = above.next; caller; caller = depths.up(*caller).next)
                chain.insert(chain.begin(), source_name(*caller));
            uint64_t bytes = above.bytes + depths.frame(*function);
            // The outermost caller may be called by the event loop outside the program.
            const Function *outermost = function;
            for (Depth d = above; d.next; d = depths.up(*outermost))
                outermost = d.next;
            if (calls.pointers.called_later().count(const_cast<Function *>(outermost)) &&
                !calls.pointers.thread_starts().count(const_cast<Function *>(outermost))) {
                bytes += loop_bytes;
                if (loop_caller)
                    chain.insert(chain.begin(), source_name(*loop_caller));
            }
            chain.push_back(source_name(*function));
            // Functions that the stage's code calls.
            Depth best;
            auto consider = [&](const Instruction &instruction) {
                if (const auto *call = dyn_cast<CallBase>(&instruction))
                    for (const Function *callee : calls.pointers.callees(*call)) {
                        uint64_t depth = depths.down(*callee).bytes;
                        if (depth > best.bytes)
                            best = {depth, callee};
                    }
            };
            if (function == stage.function)
                for (const Instruction &instruction : instructions(*function))
                    consider(instruction);
            for (const BasicBlock *block : stage.blocks)
                if (block->getParent() == function)
                    for (const Instruction &instruction : *block)
                        consider(instruction);
            bytes += best.bytes;
            for (const Function *callee = best.next; callee; callee = depths.down(*callee).next)
                chain.push_back(source_name(*callee));
            if (bytes >= most)
                most = bytes, bound.deepest = chain;
        }
        bound.bytes = most;
        std::set<unsigned> seen;
        for (const Function *function : stage.functions) {
            if (depths.is_recursive(*function) && seen.insert(depths.component_of(*function)).second) {
                std::string text = "recursion: " + source_name(*function);
                for (const Function *other : stage.functions)
                    if (other != function && depths.component_of(*other) == depths.component_of(*function)) {
                        text += " -> " + source_name(*other);
                        break;
                    }
                bound.why_not.push_back(text + " -> " + source_name(*function));
            }
            if (frames.find(*function).is_dynamic)
                bound.why_not.push_back("dynamic stack (alloca or an array of variable length): " +
                                        source_name(*function));
            for (const Function *callee : calls.callees(*function))
                if (callee->isDeclaration() && !callee->isIntrinsic() &&
                    !config.external_stack.count(callee->getName().str()))
                    outside.insert(callee->getName().str());
        }
        if (frames.units == 0)
            bound.why_not.push_back("no frames: " + frames.origin);
        std::sort(bound.why_not.begin(), bound.why_not.end());
        if (bound.why_not.size() > 8) {
            std::string more = std::to_string(bound.why_not.size() - 8) + " more";
            bound.why_not.resize(8);
            bound.why_not.push_back(more);
        }
        bounds.push_back(bound);
    }
    if (!outside.empty())
        doubts.push_back({"external_stack", nullptr,
                          std::to_string(outside.size()) + " functions from outside of the program count " +
                              std::to_string(config.external_bytes) + " bytes of stack each",
                          "[stack] external_bytes, or [[external]] with stack_bytes"});
    return bounds;
}

} // namespace stingy
