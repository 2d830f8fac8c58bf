#include "memwalk/sizes.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

namespace {
// A bound above this comes from the type, not from the program.
constexpr uint64_t largest_useful_bound = uint64_t(16) << 20;

Size constant(uint64_t bytes) {
    Size size;
    size.bytes = size.most = size.least = bytes;
    return size;
}
Size bounded(uint64_t least, uint64_t most, std::string reason) {
    Size size;
    size.kind = Size::bounded, size.bytes = size.most = most, size.least = least, size.reason = std::move(reason);
    return size;
}
Size unknown(std::string reason) {
    Size size;
    size.kind = Size::variable, size.reason = std::move(reason);
    return size;
}
Size times(const Size &a, const Size &b) {
    bool both = a.most && b.most && (*b.most == 0 || *a.most <= largest_useful_bound / std::max<uint64_t>(1, *b.most));
    if (a.kind == Size::constant && b.kind == Size::constant)
        return constant(*a.bytes * *b.bytes);
    if (both)
        return bounded(a.least * b.least, *a.most * *b.most, a.kind == Size::constant ? b.reason : a.reason);
    const Size &fixed = a.kind == Size::constant ? a : b, &other = a.kind == Size::constant ? b : a;
    if (fixed.kind != Size::constant)
        return unknown(a.reason + " times " + b.reason);
    Size size;
    size.kind = Size::n_constant, size.unit = *fixed.bytes, size.reason = "n = " + other.reason;
    if (*fixed.bytes <= 1)
        size = unknown(other.reason);
    return size;
}
/// Returns K for `x < K ? x : K` over a field, which is loaded twice.
std::optional<uint64_t> smaller_of(const Value *value, const Module &module) {
    const auto *phi = dyn_cast<PHINode>(value);
    if (!phi || phi->getNumIncomingValues() != 2)
        return std::nullopt;
    for (unsigned i = 0; i < 2; i++) {
        const auto *limit = dyn_cast<ConstantInt>(phi->getIncomingValue(i));
        const Value *other = phi->getIncomingValue(1 - i);
        while (const auto *cast = dyn_cast<CastInst>(other))
            other = cast->getOperand(0);
        const auto *load = dyn_cast<LoadInst>(other);
        const BasicBlock *before = phi->getIncomingBlock(i)->getSinglePredecessor();
        if (!limit || !load || !before || before != phi->getIncomingBlock(1 - i)->getSinglePredecessor())
            continue;
        const auto *branch = dyn_cast<BranchInst>(before->getTerminator());
        const auto *compare = branch && branch->isConditional() ? dyn_cast<ICmpInst>(branch->getCondition()) : nullptr;
        if (!compare)
            continue;
        const Value *left = compare->getOperand(0);
        while (const auto *cast = dyn_cast<CastInst>(left))
            left = cast->getOperand(0);
        const auto *again = dyn_cast<LoadInst>(left);
        const auto *bound = dyn_cast<ConstantInt>(compare->getOperand(1));
        Cell a, b;
        if (!again || !bound || bound->getZExtValue() != limit->getZExtValue() || !compare->isUnsigned())
            continue;
        if (!cell_of(load->getPointerOperand(), module, a) || !cell_of(again->getPointerOperand(), module, b) ||
            !(a == b))
            continue;
        bool is_less = compare->getPredicate() == ICmpInst::ICMP_ULT || compare->getPredicate() == ICmpInst::ICMP_ULE;
        const BasicBlock *when_less = branch->getSuccessor(is_less ? 0 : 1);
        if (when_less == phi->getIncomingBlock(1 - i))
            return limit->getZExtValue();
    }
    return std::nullopt;
}
} // namespace

struct Sizes::Ranges {
    PassBuilder builder;
    LoopAnalysisManager loops;
    FunctionAnalysisManager functions;
    CGSCCAnalysisManager components;
    ModuleAnalysisManager modules;
    Ranges() {
        builder.registerModuleAnalyses(modules);
        builder.registerCGSCCAnalyses(components);
        builder.registerFunctionAnalyses(functions);
        builder.registerLoopAnalyses(loops);
        builder.crossRegisterProxies(loops, functions, components, modules);
    }
};

Sizes::Sizes(const Calls &calls) : calls(calls), ranges(std::make_unique<Ranges>()) {}
Sizes::~Sizes() = default;

Size Sizes::of_value(const Value *value, const CallBase &at, const std::string &written) {
    if (const auto *number = dyn_cast<ConstantInt>(value); number && number->getBitWidth() <= 64)
        return constant(number->getZExtValue());
    std::string reason = written;
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    auto &lazy = ranges->functions.getResult<LazyValueAnalysis>(*const_cast<Function *>(at.getFunction()));
    ConstantRange range = lazy.getConstantRange(const_cast<Value *>(value), const_cast<CallBase *>(&at), false);
    uint64_t most = range.getUnsignedMax().getLimitedValue();
    if (!range.isEmptySet() && most <= largest_useful_bound) {
        if (const APInt *single = range.getSingleElement())
            return constant(single->getZExtValue());
        return bounded(range.getUnsignedMin().getLimitedValue(), most, reason);
    }
    if (value->getType()->getIntegerBitWidth() > 64)
        return unknown(reason);
    const Value *plain = value;
    while (const auto *cast = dyn_cast<CastInst>(plain))
        plain = cast->getOperand(0);
    if (const auto *op = dyn_cast<BinaryOperator>(plain)) {
        if (const auto *factor = dyn_cast<ConstantInt>(op->getOperand(1))) {
            if (op->getOpcode() == Instruction::Mul && factor->getZExtValue() > 1)
                return times(unknown(reason), constant(factor->getZExtValue()));
            if (op->getOpcode() == Instruction::Shl && factor->getZExtValue() < 24)
                return times(unknown(reason), constant(uint64_t(1) << factor->getZExtValue()));
        }
        if (const auto *factor = dyn_cast<ConstantInt>(op->getOperand(0));
            factor && op->getOpcode() == Instruction::Mul && factor->getZExtValue() > 1)
            return times(unknown(reason), constant(factor->getZExtValue()));
    }
    if (auto most = smaller_of(plain, calls.module))
        return bounded(0, *most, reason);
    // Handles a parameter for which every caller passes a constant.
    Origins found = origins(calls, plain, &at, [](const CallBase &) { return true; });
    bool is_numbers = found.is_complete && !found.all.empty();
    uint64_t largest = 0, smallest = ~uint64_t(0);
    for (const Origin &origin : found.all) {
        is_numbers &= !origin.function && origin.number >= 0;
        largest = std::max(largest, uint64_t(origin.number)), smallest = std::min(smallest, uint64_t(origin.number));
    }
    if (is_numbers && largest <= largest_useful_bound)
        return largest == smallest ? constant(largest)
                                   : bounded(smallest, largest, reason + ", a constant of each caller");
    return unknown(reason);
}

Size Sizes::of(const CallBase &call, const Allocator &how, const WrittenCall *written, uint64_t type_bytes) {
    auto text = [&](int argument) {
        return written && argument >= 0 && unsigned(argument) < written->arguments.size()
                   ? written->arguments[argument]
                   : "argument " + std::to_string(argument);
    };
    if (how.like == "strdup")
        return unknown("strlen(" + text(0) + ") + 1");
    if (how.like == "strndup") {
        Size size = how.size >= 0 && unsigned(how.size) < call.arg_size()
                        ? of_value(call.getArgOperand(how.size), call, text(how.size))
                        : unknown(text(1));
        if (size.kind == Size::variable)
            return unknown("at most " + size.reason + " + 1");
        return bounded(1, *size.most + 1, text(how.size) + " + 1");
    }
    if (how.like != "" && how.like != "computed")
        return unknown(how.like);
    if (how.like == "computed")
        return unknown("computed by " + source_name(*call.getCalledFunction()) + " from its arguments");
    if (how.through >= 0 && how.size < 0)
        return unknown("as " + source_name(*call.getCalledFunction()) + " needs");
    if (how.size < 0)
        return type_bytes ? constant(type_bytes) : unknown("of type " + how.type);
    if (unsigned(how.size) >= call.arg_size())
        return unknown("argument " + std::to_string(how.size) + " is missing");
    Size size = of_value(call.getArgOperand(how.size), call, text(how.size));
    if (how.count >= 0 && unsigned(how.count) < call.arg_size())
        size = times(size, of_value(call.getArgOperand(how.count), call, text(how.count)));
    return size;
}

Size Sizes::join(const Size &a, const Size &b) {
    if (a.kind == Size::constant && b.kind == Size::constant)
        return *a.bytes == *b.bytes
                   ? a
                   : bounded(std::min(*a.bytes, *b.bytes), std::max(*a.bytes, *b.bytes), "sites differ");
    if (a.kind == Size::variable)
        return a;
    if (b.kind == Size::variable)
        return b;
    if (a.kind == Size::n_constant && b.kind == Size::n_constant && a.unit == b.unit)
        return a;
    if (a.kind == Size::n_constant || b.kind == Size::n_constant) {
        const Size &n = a.kind == Size::n_constant ? a : b, &other = a.kind == Size::n_constant ? b : a;
        return other.bytes && n.unit && *other.bytes % n.unit == 0 ? n : unknown(n.reason);
    }
    return bounded(std::min(a.least, b.least), std::max(*a.most, *b.most), a.reason.empty() ? b.reason : a.reason);
}

} // namespace stingy
