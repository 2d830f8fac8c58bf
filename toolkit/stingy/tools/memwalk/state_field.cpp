#include "memwalk/state_field.h"
#include "memwalk/stages.h"
#include "pch.h"

using namespace llvm;

namespace stingy {
namespace {

const Value *without_casts(const Value *value) {
    while (const auto *cast = dyn_cast<CastInst>(value))
        value = cast->getOperand(0);
    return value;
}

/// Returns the test at the end of the block, of any value; `what` is the tested value.
std::optional<StateTest> test_of(const BasicBlock &block, const Value *&what) {
    if (const auto *choice = dyn_cast<SwitchInst>(block.getTerminator())) {
        what = without_casts(choice->getCondition());
        if (choice->getCondition()->getType()->getIntegerBitWidth() > 64)
            return std::nullopt;
        StateTest test{&block, {}, choice->getDefaultDest(), true, true};
        for (const auto &one : choice->cases())
            test.when.emplace(one.getCaseValue()->getValue().getSExtValue(), one.getCaseSuccessor());
        return test;
    }
    const auto *branch = dyn_cast<BranchInst>(block.getTerminator());
    if (!branch || !branch->isConditional())
        return std::nullopt;
    const auto *compare = dyn_cast<ICmpInst>(branch->getCondition());
    if (!compare || !compare->isEquality())
        return std::nullopt;
    const auto *constant = dyn_cast<ConstantInt>(compare->getOperand(1));
    if (!constant || constant->getBitWidth() > 64)
        return std::nullopt;
    what = without_casts(compare->getOperand(0));
    bool is_equal = compare->getPredicate() == ICmpInst::ICMP_EQ;
    StateTest test{&block, {}, branch->getSuccessor(is_equal ? 1 : 0), false, true};
    test.when.emplace(constant->getValue().getSExtValue(), branch->getSuccessor(is_equal ? 0 : 1));
    return test;
}

/// Whether a comparison only prevents code from running for a value, or for all others, so that the value has no
/// separate code: `if (state != PAUSING) remove_event();`, `if (state == DONE) return;`
bool is_guard(const StateTest &test, PostDominatorTree &post, const LoopInfo &loops) {
    if (test.is_switch)
        return false;
    const BasicBlock *own = test.when.begin()->second;
    // If the value ends a loop, the code after the loop belongs to the value.
    if (const Loop *loop = loops.getLoopFor(test.block); loop && !loop->contains(own))
        return false;
    auto *node = post.getNode(const_cast<BasicBlock *>(test.block));
    const BasicBlock *meeting = node && node->getIDom() ? node->getIDom()->getBlock() : nullptr;
    if (own == meeting)
        return true;
    if (own->getSinglePredecessor() != test.block ||
        !(isa<ReturnInst>(own->getTerminator()) || own->getSingleSuccessor() == meeting))
        return false;
    return all_of(*own, [](const Instruction &instruction) {
        return isa<DbgInfoIntrinsic>(instruction) || !(isa<StoreInst>(instruction) || isa<CallBase>(instruction));
    });
}

/// Whether an address belongs to a field of a global structure, and not to an array.
bool is_in_global(const Value *address) {
    while (const auto *gep = dyn_cast<GEPOperator>(address)) {
        if (!gep->hasAllConstantIndices() || isa<ArrayType>(gep->getSourceElementType()))
            return false;
        address = gep->getPointerOperand();
    }
    return isa<GlobalVariable>(address);
}

bool sounds_like_state(StringRef name) {
    std::string lower = name.lower();
    for (const char *word : {"state", "stage", "phase"})
        if (StringRef(lower).contains(word))
            return true;
    return false;
}

} // namespace

bool field_of(const Calls &calls, const Value *value, Cell &cell) {
    value = without_casts(value);
    if (const auto *load = dyn_cast<LoadInst>(value))
        return cell_of(load->getPointerOperand(), calls.module, cell);
    if (const auto *argument = dyn_cast<Argument>(value))
        for (const CallBase *call : calls.callers(*argument->getParent()))
            if (argument->getArgNo() < call->arg_size())
                if (const auto *load = dyn_cast<LoadInst>(without_casts(call->getArgOperand(argument->getArgNo())));
                    load && cell_of(load->getPointerOperand(), calls.module, cell))
                    return true;
    return false;
}

std::vector<StateTest> state_tests(const Calls &calls, const Cell &state, const Function *only) {
    std::vector<StateTest> all;
    for (const Function &function : calls.module) {
        if (function.isDeclaration() || (only && &function != only))
            continue;
        std::vector<StateTest> here;
        std::set<int64_t> values;
        std::set<const BasicBlock *> ways;
        bool is_chosen_by_argument = false;
        std::unique_ptr<PostDominatorTree> post;
        LoopInfo loops;
        for (const BasicBlock &block : function) {
            const Value *what = nullptr;
            Cell cell;
            auto test = test_of(block, what);
            if (!test || !field_of(calls, what, cell) || !(cell == state))
                continue;
            if (!post)
                post = std::make_unique<PostDominatorTree>(const_cast<Function &>(function)),
                loops.analyze(DominatorTree(const_cast<Function &>(function)));
            if (!only && is_guard(*test, *post, loops))
                continue;
            is_chosen_by_argument |= isa<Argument>(what);
            for (auto &[value, to] : test->when)
                values.insert(value), ways.insert(to);
            here.push_back(*test);
        }
        // A function that tests one value, or treats several alike, is no dispatcher. Neither is a function that
        // returns the name of a state and calls nothing.
        if (!values.empty() && (values.size() == 1 || ways.size() == 1) && !only &&
            calls.changes_state(function, state)) {
            for (StateTest &test : here)
                test.is_dispatch = false;
            all.insert(all.end(), here.begin(), here.end());
            continue;
        }
        if ((values.size() < 2 || ways.size() < 2) && !only)
            continue;
        if (is_chosen_by_argument && !only && calls.callees(function).empty())
            continue;
        all.insert(all.end(), here.begin(), here.end());
    }
    return all;
}

std::vector<StateTest> argument_tests(const Function &function, unsigned parameter) {
    std::vector<StateTest> all;
    for (const BasicBlock &block : function) {
        const Value *what = nullptr;
        auto test = test_of(block, what);
        if (test && what == function.getArg(parameter))
            all.push_back(*test);
    }
    return all;
}

bool guess_state_field(const Program &program, const Calls &calls, StateField &guess) {
    struct Candidate {
        std::set<int64_t> tested, stored;
        std::set<const Function *> functions, storing;
        bool is_called = false, has_switch = false;
    };
    std::map<Cell, Candidate> candidates;
    auto any = [](const CallBase &) { return true; };
    for (const Function &function : calls.module)
        for (const BasicBlock &block : function) {
            const Value *what = nullptr;
            Cell cell;
            if (auto test = test_of(block, what); test && field_of(calls, what, cell)) {
                Candidate &candidate = candidates[cell];
                for (auto &[value, to] : test->when)
                    candidate.tested.insert(value);
                candidate.has_switch |= test->is_switch && test->when.size() >= 2;
            }
            for (const Instruction &instruction : block)
                if (const auto *call = dyn_cast<CallBase>(&instruction))
                    if (!isa<Function>(call->getCalledOperand()) && field_of(calls, call->getCalledOperand(), cell))
                        candidates[cell].is_called = true;
        }
    std::vector<std::tuple<int, Cell, bool>> ranked;
    for (auto &[cell, candidate] : candidates) {
        auto record = program.facts.records.find(cell.record);
        if (record == program.facts.records.end())
            continue;
        std::string name = field_name(program.facts, cell);
        const Field *field = record->second.find(name);
        if (!field || field->offset != cell.offset || field->is_bits)
            continue;
        auto stores = calls.stores.find(cell);
        if (stores == calls.stores.end())
            continue;
        // A single structure belongs to no request.
        if (all_of(stores->second, [](const StoreInst *store) { return is_in_global(store->getPointerOperand()); }))
            continue;
        for (const StoreInst *store : stores->second)
            for (const Origin &origin : origins(calls, store->getValueOperand(), store, any).all) {
                candidate.storing.insert(origin.at->getFunction());
                if (origin.function)
                    candidate.functions.insert(origin.function);
                else
                    candidate.stored.insert(origin.number);
            }
        int told = (field->is_state ? 100000 : 0) + (record->second.is_request ? 1000 : 0);
        if (candidate.is_called && (candidate.functions.size() >= 3 || (candidate.functions.size() >= 2 && told))) {
            ranked.push_back(
                {told + 10 * int(std::min({candidate.functions.size(), candidate.storing.size(), size_t(30)})) +
                     (sounds_like_state(name) ? 200 : 0),
                 cell, true});
            continue;
        }
        unsigned both = 0;
        for (int64_t value : candidate.tested)
            both += candidate.stored.count(value);
        bool is_named = sounds_like_state(name);
        if (!told && (both < 2 || (!candidate.has_switch && !is_named && !field->is_enum)))
            continue;
        ranked.push_back({told + int(2 * std::min(both, 12u)) + (is_named ? 200 : 0) + (field->is_enum ? 20 : 0) +
                              (candidate.has_switch ? 20 : 0) + 5 * int(std::min<size_t>(candidate.storing.size(), 10)),
                          cell, false});
    }
    if (ranked.empty())
        return false;
    std::sort(ranked.begin(), ranked.end(), [](const auto &a, const auto &b) {
        return std::get<0>(a) != std::get<0>(b) ? std::get<0>(a) > std::get<0>(b) : std::get<1>(a) < std::get<1>(b);
    });
    guess.cell = std::get<1>(ranked[0]);
    guess.is_function = std::get<2>(ranked[0]);
    for (size_t i = 1; i < ranked.size() && i < 4; i++)
        if (std::get<0>(ranked[i]) * 3 > std::get<0>(ranked[0]) * 2)
            guess.others.push_back(std::get<1>(ranked[i]).record + "." +
                                   field_name(program.facts, std::get<1>(ranked[i])));
    return true;
}

} // namespace stingy
