#include "memwalk/pointers.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

Pointers::Pointers(Module &module, const Config &config, const Allocators &allocators, const Facts &facts,
                   bool is_sound)
    : module(module), config(config), allocators(allocators), facts(facts), is_sound(is_sound) {
    new_node(); // node 0 stays empty: integers, null
    all_targets.push_back({});
    contents_of.push_back(0);
    for (Function &function : module) {
        function.removeDeadConstantUsers();
        for (const Use &use : function.uses()) {
            const auto *call = dyn_cast<CallBase>(use.getUser());
            if (!call || !call->isCallee(&use)) {
                address_taken.insert(&function);
                break;
            }
        }
    }
    add_constraints();
    is_built = true;
    solve();
    // If only functions of another type were seen, the program calls through the wrong type.
    for (CallBase *call : indirect)
        if (resolved[call].empty())
            for (Function *function : of_other_type.lookup(call))
                reach(*call, *function);
    solve();
    resolve_by_type(is_sound);
    solve();
    // Sorts in the order of the program, not of discovery.
    DenseMap<const Function *, unsigned> position;
    for (const Function &function : module)
        position.try_emplace(&function, position.size());
    for (auto &[call, callees] : resolved)
        std::sort(callees.begin(), callees.end(),
                  [&](const Function *a, const Function *b) { return position.lookup(a) < position.lookup(b); });
    find_handed_out();
    report();
}

/// Whether the call can reach the function, by the type that the source shows.
bool Pointers::fits(const CallBase &call, const Function &function) const {
    if (function.arg_size() > call.arg_size() && !function.isVarArg())
        return false;
    if (is_sound || function.isDeclaration())
        return true;
    auto types = called_as.lookup(&call);
    return !types ||
           any_of(*types, [&](const Signature &type) { return facts.can_be_called_as(source_name(function), type); });
}

void Pointers::reach(CallBase &call, Function &function) {
    auto &found = resolved[&call];
    if (is_contained(found, &function))
        return;
    found.push_back(&function);
    if (!function.isDeclaration())
        link(call, function);
    // This block belongs to no object, so stingify does not change malloc if it is called through a pointer.
    else if (const Allocator *how = allocators.malloc_of(function); how && call.getType()->isPointerTy()) {
        add_target(node_of(&call), target({Target::block, &call, {}}, &call));
        if (how->pointer >= 0 && unsigned(how->pointer) < call.arg_size())
            add_copy(node_of(call.getArgOperand(how->pointer)), node_of(&call));
    }
}

bool Pointers::is_untold_free(const Function &function) const {
    return allocators.free_of(function) && !config.handed_on.count(source_name(function));
}

/// Finds calls that pass `free` to functions from outside if the configuration does not list what they free.
void Pointers::find_handed_out() {
    auto is_free = [&](unsigned node) {
        for (unsigned index : graph[find(node)].points_to)
            if (all_targets[index].kind == Target::function &&
                is_untold_free(*cast<Function>(all_targets[index].value)))
                return true;
        return false;
    };
    if (none_of(address_taken, [&](Function *function) { return is_untold_free(*function); }))
        return;
    // Values joined by generic containers are no functions: a function appears by name, or comes from a field of
    // functions or from a caller.
    std::function<bool(const Value *, unsigned)> is_function = [&](const Value *value, unsigned depth) {
        value = value->stripPointerCasts();
        if (isa<Function>(value))
            return true;
        if (const auto *load = dyn_cast<LoadInst>(value)) {
            Cell cell;
            if (!cell_of(load->getPointerOperand(), module, cell))
                return false;
            auto record = facts.records.find(cell.record);
            return record != facts.records.end() && any_of(record->second.fields, [&](const Field &field) {
                       return field.is_function && field.offset == cell.offset;
                   });
        }
        if (const auto *argument = dyn_cast<Argument>(value); argument && depth < 4)
            for (const User *user : argument->getParent()->users())
                if (const auto *call = dyn_cast<CallBase>(user);
                    call && call->getCalledOperand() == argument->getParent() &&
                    argument->getArgNo() < call->arg_size() &&
                    is_function(call->getArgOperand(argument->getArgNo()), depth + 1))
                    return true;
        return false;
    };
    auto is_function_there = [&](const Value *value) { return is_function(value, 0); };
    for (CallBase *call : outside)
        for (Value *argument : call->args()) {
            unsigned node = nodes.lookup(argument);
            bool is_given = node && is_function_there(argument) && is_free(node);
            // Targets inside a passed structure count, too.
            if (node)
                for (unsigned index : graph[find(node)].points_to) {
                    auto record = facts.records.find(record_of(all_targets[index]));
                    if (record == facts.records.end())
                        continue;
                    for (const Field &field : record->second.fields)
                        if (field.is_function)
                            if (auto cell = target_of_cell.find({record->first, field.offset});
                                cell != target_of_cell.end())
                                is_given |= contents_of[cell->second] && is_free(contents_of[cell->second]);
                }
            if (is_given && !is_contained(handed_out, call))
                handed_out.push_back(call);
        }
}

std::string Pointers::record_of(const Target &target) const {
    if (target.kind == Target::cell)
        return target.field.record;
    Cell first;
    if (target.kind == Target::global)
        descend(cast<GlobalVariable>(target.value)->getValueType(), 0, module.getDataLayout(), first);
    if (target.kind == Target::local && target.value)
        descend(cast<AllocaInst>(target.value)->getAllocatedType(), 0, module.getDataLayout(), first);
    return first.record;
}

void Pointers::report() {
    for (CallBase *call : handed_out)
        doubts.push_back({"free_handed_out", call,
                          "free is passed to " + source_name(*call->getCalledFunction()) +
                              ", which is from outside; what it frees is not seen",
                          "free its objects by name, or list them with [[handed_on]]"});
    for (auto &[name, told] : config.handed_on)
        doubts.push_back({"freed_by_pointer", nullptr,
                          "the address of " + name +
                              " is passed on; the configuration lists the objects that it frees: " +
                              (told.frees.empty() ? "nothing of a request" : join(told.frees, ", ")),
                          "keep " + told.place.text() + " true", told.frees});
    for (CallBase *call : indirect) {
        sum.total++;
        auto &found = resolved[call];
        sum.narrowed += !found.empty() && any_of(of_other_type.lookup(call),
                                                 [&](Function *function) { return !is_contained(found, function); });
        sum.max_targets = std::max(sum.max_targets, unsigned(found.size()));
        Cell cell;
        const auto *load = dyn_cast<LoadInst>(call->getCalledOperand()->stripPointerCasts());
        if (found.empty()) {
            sum.unresolved++;
            doubts.push_back(
                {"unresolved_call", call, "a call through a pointer that nothing known is stored in",
                 "if the function comes from outside (dlsym), nothing; else give the field a value by name"});
        } else if (by_type_only.count(call)) {
            sum.by_type++;
            doubts.push_back({"resolved_by_type", call,
                              "no function was seen to flow to this call; the " + std::to_string(found.size()) +
                                  " of its type whose address is taken were assumed",
                              "assign the pointer by name, or accept"});
        } else if (load && cell_of(load->getPointerOperand(), module, cell))
            sum.by_field++;
        else
            sum.by_argument++;
    }
}

unsigned Pointers::new_node() {
    graph.emplace_back();
    stands_for.push_back(graph.size() - 1);
    return graph.size() - 1;
}

unsigned Pointers::target(const Target &t, const void *key) {
    auto [found, is_new] = target_of_value.try_emplace(key, all_targets.size());
    if (is_new) {
        all_targets.push_back(t);
        contents_of.push_back(0);
    }
    return found->second;
}

unsigned Pointers::cell_target(const Cell &cell) {
    auto [found, is_new] = target_of_cell.try_emplace(cell, all_targets.size());
    if (is_new) {
        all_targets.push_back({Target::cell, nullptr, cell});
        contents_of.push_back(0);
    }
    return found->second;
}

unsigned Pointers::content(unsigned index) {
    if (contents_of[index])
        return contents_of[index];
    const Target &t = all_targets[index];
    if (t.kind == Target::function)
        return 0;
    Cell first;
    Type *type = nullptr;
    if (t.kind == Target::global)
        type = cast<GlobalVariable>(t.value)->getValueType();
    if (t.kind == Target::local && t.value)
        type = cast<AllocaInst>(t.value)->getAllocatedType();
    // The start of a structure is its first field.
    if (type)
        descend(type, 0, module.getDataLayout(), first);
    unsigned node = first.record.empty() ? new_node() : content(cell_target(first));
    contents_of[index] = node;
    return node;
}

unsigned Pointers::node_of(const Value *value) {
    if (!value->getType()->isPointerTy() && !isa<Instruction>(value) && !isa<Argument>(value) &&
        !isa<ConstantAggregate>(value))
        return 0;
    auto found = nodes.find(value);
    if (found != nodes.end())
        return found->second;
    unsigned node = new_node();
    nodes[value] = node;
    Cell cell;
    if (auto *function = dyn_cast<Function>(value))
        add_target(node, target({Target::function, const_cast<Function *>(function), {}}, function));
    else if (auto *global = dyn_cast<GlobalVariable>(value))
        add_target(node, target({Target::global, const_cast<GlobalVariable *>(global), {}}, global));
    else if (auto *local = dyn_cast<AllocaInst>(value))
        add_target(node, target({Target::local, const_cast<AllocaInst *>(local), {}}, local));
    else if (const auto *values = dyn_cast<ConstantAggregate>(value)) {
        for (const Use &one : values->operands())
            add_copy(node_of(one), node);
    } else if (const auto *gep = dyn_cast<GEPOperator>(value)) {
        if (cell_of(value, module, cell))
            add_target(node, cell_target(cell));
        else
            add_copy(node_of(gep->getPointerOperand()), node);
    } else if (const auto *expression = dyn_cast<ConstantExpr>(value)) {
        if (expression->isCast())
            add_copy(node_of(expression->getOperand(0)), node);
    } else if (const auto *alias = dyn_cast<GlobalAlias>(value))
        add_copy(node_of(alias->getAliasee()), node);
    return node;
}

/// Returns the representative of a node, after nodes that copy to each other were joined.
unsigned Pointers::find(unsigned node) const {
    while (stands_for[node] != node)
        node = stands_for[node] = stands_for[stands_for[node]];
    return node;
}

void Pointers::add_target(unsigned node, unsigned index) {
    node = find(node);
    if (node && graph[node].points_to.test_and_set(index))
        graph[node].set_changed();
}

void Pointers::add_copy(unsigned from, unsigned to) {
    from = find(from), to = find(to);
    if (!from || !to || from == to || !edges.insert({from, to}).second)
        return;
    graph[from].copies.push_back(to);
    has_new_edges = true;
    // Cycles are joined before targets are propagated round them.
    if (!is_built)
        return;
    sum.passed += graph[from].points_to.count();
    if ((graph[to].points_to |= graph[from].points_to))
        graph[to].set_changed();
}

/// Joins the nodes of each cycle of copies, because these have equal targets, and sorts the others so that a node
/// comes before the nodes to which it is copied (Tarjan's components, in reverse).
void Pointers::join_cycles() {
    std::vector<unsigned> index(graph.size()), low(graph.size()), stack;
    std::vector<bool> is_on_stack(graph.size());
    std::vector<std::pair<unsigned, size_t>> visits;
    std::vector<std::vector<unsigned>> cycles;
    order.clear();
    unsigned next = 0;
    for (unsigned root = 1; root < graph.size(); root++) {
        if (index[root] || stands_for[root] != root || graph[root].copies.empty())
            continue;
        visits.push_back({root, 0});
        while (!visits.empty()) {
            auto [node, child] = visits.back();
            if (child == 0)
                index[node] = low[node] = ++next, stack.push_back(node), is_on_stack[node] = true;
            bool is_deeper = false;
            while (child < graph[node].copies.size()) {
                unsigned to = find(graph[node].copies[child++]);
                if (!index[to]) {
                    visits.back().second = child;
                    visits.push_back({to, 0});
                    is_deeper = true;
                    break;
                }
                if (is_on_stack[to])
                    low[node] = std::min(low[node], index[to]);
            }
            if (is_deeper)
                continue;
            visits.pop_back();
            if (!visits.empty())
                low[visits.back().first] = std::min(low[visits.back().first], low[node]);
            if (low[node] != index[node])
                continue;
            order.push_back(node);
            std::vector<unsigned> members;
            unsigned member;
            do {
                member = stack.back();
                stack.pop_back();
                is_on_stack[member] = false;
                members.push_back(member);
            } while (member != node);
            if (members.size() > 1)
                cycles.push_back(std::move(members));
        }
    }
    std::reverse(order.begin(), order.end());
    for (const auto &members : cycles)
        join_nodes(members);
    // Edges between joined nodes, and duplicate edges, are followed once.
    if (!cycles.empty()) {
        edges.clear();
        for (unsigned node = 1; node < graph.size(); node++) {
            if (stands_for[node] != node || graph[node].copies.empty())
                continue;
            std::vector<unsigned> copies;
            for (unsigned to : graph[node].copies)
                if (to = find(to); to != node && edges.insert({node, to}).second)
                    copies.push_back(to);
            graph[node].copies = std::move(copies);
        }
    }
    has_new_edges = false;
}

/// The last member of a component becomes its representative.
void Pointers::join_nodes(const std::vector<unsigned> &members) {
    unsigned into = members.back();
    Node &all = graph[into];
    // Targets that only some members have processed are processed again for all.
    for (unsigned member : members) {
        if (member == into)
            continue;
        Node &node = graph[member];
        stands_for[member] = into;
        all.points_to |= node.points_to;
        all.done &= node.done, all.passed &= node.passed;
        auto move = [](auto &to, auto &from) {
            to.insert(to.end(), from.begin(), from.end());
            from = {};
        };
        move(all.copies, node.copies), move(all.loads, node.loads), move(all.stores, node.stores);
        move(all.copies_content_to, node.copies_content_to), move(all.copies_content_from, node.copies_content_from);
        move(all.calls, node.calls);
        node.points_to.clear(), node.done.clear(), node.passed.clear();
    }
    all.set_changed();
}

/// Processes a node's new targets: loads and stores through it become copies, and calls reach functions.
void Pointers::draw(unsigned n, const SparseBitVector<> &fresh) {
    bool is_used = !(graph[n].loads.empty() && graph[n].stores.empty() && graph[n].copies_content_to.empty() &&
                     graph[n].copies_content_from.empty());
    for (unsigned index : fresh) {
        const Target t = all_targets[index];
        if (t.kind == Target::function) {
            for (size_t i = 0; i < graph[n].calls.size(); i++) {
                auto [call, argument] = graph[n].calls[i];
                auto *function = cast<Function>(t.value);
                if (argument >= 0) {
                    link_callback(*call, *function, argument >= 64);
                    continue;
                }
                if (fits(*call, *function))
                    reach(*call, *function);
                else if (function->arg_size() <= call->arg_size() || function->isVarArg())
                    of_other_type[call].push_back(function);
            }
            continue;
        }
        if (!is_used)
            continue;
        unsigned inside = content(index);
        for (size_t i = 0; i < graph[n].loads.size(); i++)
            add_copy(inside, graph[n].loads[i]);
        for (size_t i = 0; i < graph[n].stores.size(); i++)
            add_copy(graph[n].stores[i], inside);
        for (size_t i = 0; i < graph[n].copies_content_to.size(); i++) {
            SparseBitVector<> others = graph[find(graph[n].copies_content_to[i])].points_to;
            for (unsigned other : others)
                if (all_targets[other].kind != Target::function)
                    add_copy(inside, content(other));
        }
        for (size_t i = 0; i < graph[n].copies_content_from.size(); i++) {
            SparseBitVector<> others = graph[find(graph[n].copies_content_from[i])].points_to;
            for (unsigned other : others)
                if (all_targets[other].kind != Target::function)
                    add_copy(content(other), inside);
        }
    }
}

/// Solves in waves (Pereira and Berlin, "Wave propagation and deep propagation for pointer analysis", 2009): cycles are
/// joined, new targets are propagated along the copies in order, and then they cause new copies.
void Pointers::solve() {
    for (bool is_again = true; is_again;) {
        is_again = false;
        if (has_new_edges)
            join_cycles();
        for (unsigned n : order) {
            n = find(n);
            Node &node = graph[n];
            if (!node.is_to_pass)
                continue;
            node.is_to_pass = false;
            SparseBitVector<> fresh;
            fresh.intersectWithComplement(node.points_to, node.passed);
            node.passed |= fresh;
            sum.passed += uint64_t(fresh.count()) * node.copies.size();
            for (unsigned to : node.copies)
                if ((graph[to = find(to)].points_to |= fresh))
                    graph[to].set_changed();
        }
        size_t count = graph.size();
        for (unsigned n = 1; n < count; n++) {
            if (!graph[n].is_changed || stands_for[n] != n)
                continue;
            graph[n].is_changed = false;
            SparseBitVector<> fresh;
            fresh.intersectWithComplement(graph[n].points_to, graph[n].done);
            if (!fresh.empty()) {
                graph[n].done |= fresh;
                draw(n, fresh);
            }
            is_again = true;
        }
        is_again |= has_new_edges;
    }
}

void Pointers::resolve_by_type(bool is_for_all) {
    for (CallBase *call : indirect) {
        auto &found = resolved[call];
        if (!found.empty() && !is_for_all)
            continue;
        bool was_empty = found.empty();
        for (Function *function : address_taken) {
            FunctionType *type = function->getFunctionType(), *wanted = call->getFunctionType();
            bool is_same =
                type->getReturnType() == wanted->getReturnType() && type->getNumParams() == wanted->getNumParams();
            for (unsigned i = 0; is_same && i < type->getNumParams(); i++)
                is_same = type->getParamType(i) == wanted->getParamType(i);
            if (is_same && fits(*call, *function))
                reach(*call, *function);
        }
        if (was_empty && !found.empty())
            by_type_only.insert(call);
    }
}

const std::vector<Function *> &Pointers::callees(const CallBase &call) const {
    static const std::vector<Function *> none;
    auto found = resolved.find(&call);
    return found == resolved.end() ? none : found->second;
}

std::vector<const Target *> Pointers::targets(const Value *pointer) const {
    std::vector<const Target *> all;
    auto found = nodes.find(pointer);
    if (found != nodes.end())
        for (unsigned index : graph[find(found->second)].points_to)
            all.push_back(&all_targets[index]);
    return all;
}

std::vector<const Target *> Pointers::resized(const CallBase &call) const {
    std::vector<const Target *> all;
    if (auto found = resized_by.find(&call); found != resized_by.end())
        for (unsigned index : graph[find(found->second)].points_to)
            all.push_back(&all_targets[index]);
    return all;
}

std::vector<const Target *> Pointers::contents(const Cell &cell) const {
    std::vector<const Target *> all;
    auto found = target_of_cell.find(cell);
    if (found != target_of_cell.end() && contents_of[found->second])
        for (unsigned index : graph[find(contents_of[found->second])].points_to)
            all.push_back(&all_targets[index]);
    return all;
}

void Pointers::find_holders() const {
    if (!held_by_field.empty())
        return;
    held_by_field.resize(all_targets.size()), held_by_global.resize(all_targets.size());
    for (auto &[cell, index] : target_of_cell)
        if (contents_of[index])
            for (unsigned held : graph[find(contents_of[index])].points_to)
                if (all_targets[held].kind == Target::block)
                    held_by_field[held].push_back(&cell);
    for (size_t i = 1; i < all_targets.size(); i++)
        if (all_targets[i].kind == Target::global && contents_of[i])
            for (unsigned held : graph[find(contents_of[i])].points_to)
                if (all_targets[held].kind == Target::block)
                    held_by_global[held].push_back(all_targets[i].value);
}

const std::vector<const Cell *> &Pointers::holders(const CallBase &block) const {
    static const std::vector<const Cell *> none;
    find_holders();
    auto key = target_of_value.find(&block);
    return key == target_of_value.end() ? none : held_by_field[key->second];
}

const std::vector<const Value *> &Pointers::global_holders(const CallBase &block) const {
    static const std::vector<const Value *> none;
    find_holders();
    auto key = target_of_value.find(&block);
    return key == target_of_value.end() ? none : held_by_global[key->second];
}

} // namespace stingy
