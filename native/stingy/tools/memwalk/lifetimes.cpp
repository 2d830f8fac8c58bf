#include "pch.h"
#include "memwalk/lifetimes.h"

using namespace llvm;

namespace stingy {
namespace {

using Set = BitVector;

Set unite(Set a, const Set &b) { a |= b; return a; }
Set without(Set a, const Set &b) { a.reset(b); return a; }
Set meet(Set a, const Set &b) { a &= b; return a; }

/// What a part of the code does to objects, whatever was there before.
struct Effect {
  Set frees, allocs; ///< on every path, and not allocated again; on some path
};

class Lifetimes {
public:
  Lifetimes(const Calls &calls, const StageGraph &graph, Objects &objects) : calls(calls), graph(graph), objects(objects), count(objects.all.size()), none(count), every(count, true) {}

  void run() {
    owned = objects.request_records;
    for (const Object &object : objects.all)
      if (object.scope == Object::request && !object.record.empty()) owned.insert(object.record);
    for (const Function &function : calls.module)
      for (const Instruction &instruction : instructions(function))
        if (const auto *load = dyn_cast<LoadInst>(&instruction)) {
          Cell cell;
          if (cell_of(load->getPointerOperand(), calls.module, cell) && cell == graph.state && graph.dispatchers.count(&function))
            if (const auto *gep = dyn_cast<GEPOperator>(load->getPointerOperand())) own_values.insert(gep->getPointerOperand());
        }
    find_allocs();
    std::vector<Set> at(graph.stages.size(), none);
    for (unsigned i = 0; i < at.size(); i++)
      for (unsigned o = 0; o < count; o++)
        for (auto *list : {&objects.all[o].alloc, &objects.all[o].realloc})
          for (const Site &site : *list)
            if (is_contained(site.stages, i)) at[i].set(o);
    std::vector<Set> dead;
    for (const Edge &edge : graph.edges) dead.push_back(edge.places.empty() ? none : dead_over(edge.from, edge.places));
    bool is_changed = true;
    while (is_changed) {
      is_changed = false;
      for (unsigned i = 0; i < graph.edges.size(); i++) {
        const Edge &edge = graph.edges[i];
        Set next = unite(at[edge.to], without(at[edge.from], dead[i]));
        if (next != at[edge.to]) at[edge.to] = next, is_changed = true;
      }
    }
    // Objects that start-up or code outside of the stages allocates, and stages free: somebody hands them in at the beginning.
    for (unsigned o = 0; o < count; o++) {
      Object &object = objects.all[o];
      for (unsigned i = 0; i < at.size(); i++)
        if (at[i].test(o)) object.live.insert(i);
      bool is_from_outside = false;
      for (auto *list : {&object.alloc, &object.realloc})
        for (const Site &site : *list) is_from_outside |= site.stages.empty();
      if (is_from_outside)
        for (const Site &site : object.free) object.live.insert(site.stages.begin(), site.stages.end());
    }
    find_leaks(at, dead);
  }

private:
  void find_allocs() {
    for (const Function &function : calls.module) {
      Set own = none;
      for (const Instruction &instruction : instructions(function))
        if (const auto *call = dyn_cast<CallBase>(&instruction))
          if (auto found = objects.object_of.find(call); found != objects.object_of.end()) own.set(found->second);
      allocs[&function] = own;
    }
    bool is_changed = true;
    while (is_changed) {
      is_changed = false;
      for (auto &[function, callees] : calls.down)
        for (const Function *callee : callees) {
          Set next = unite(allocs[function], allocs[callee]);
          if (next != allocs[function]) allocs[function] = next, is_changed = true;
        }
    }
  }

  bool is_single(unsigned object) const { return objects.all[object].per_request == std::optional<uint64_t>(1); }

  /// Whether a pointer leads to something of the request at hand: it comes from a parameter, from the tested request or from an
  /// allocation here, through fields that requests own. One from a global or a list leads to any request.
  bool is_own(const Value *pointer, unsigned depth = 0) const {
    if (own_values.count(pointer)) return true;
    if (depth > 16) return false;
    if (const auto *cast = dyn_cast<CastInst>(pointer)) return is_own(cast->getOperand(0), depth + 1);
    if (const auto *gep = dyn_cast<GEPOperator>(pointer)) return is_own(gep->getPointerOperand(), depth + 1);
    if (const auto *load = dyn_cast<LoadInst>(pointer)) {
      Cell cell;
      if (!cell_of(load->getPointerOperand(), calls.module, cell) || !owned.count(cell.record)) return false;
      // A request's pointer to another one.
      for (const Target *target : calls.pointers.targets(pointer))
        if (target->kind == Target::block)
          if (auto known = objects.object_of.find(cast<CallBase>(target->value)); known != objects.object_of.end() && objects.all[known->second].record == cell.record) return false;
      return is_own(load->getPointerOperand(), depth + 1);
    }
    return isa<Argument>(pointer) || isa<PHINode>(pointer) || isa<CallBase>(pointer) || isa<AllocaInst>(pointer);
  }

  /// Whether what a call does to its arguments' objects it does to those of the request at hand.
  bool is_about_own(const CallBase &call) const {
    for (const Value *argument : call.args()) {
      if (!argument->getType()->isPointerTy() || is_own(argument)) continue;
      for (const Target *target : calls.pointers.targets(argument))
        if (target->kind == Target::block)
          if (auto known = objects.object_of.find(cast<CallBase>(target->value)); known != objects.object_of.end() && objects.all[known->second].scope == Object::request) return false;
    }
    return true;
  }

  Effect effect_of(const CallBase &call) {
    Effect effect{none, none};
    bool is_mine = is_about_own(call);
    if (auto found = objects.freed_by.find(&call); is_mine && found != objects.freed_by.end() && found->second.size() == 1 && is_single(found->second[0])) effect.frees.set(found->second[0]);
    if (auto found = objects.object_of.find(&call); found != objects.object_of.end()) effect.allocs.set(found->second);
    const auto &callees = calls.pointers.callees(call);
    Set common = every;
    bool is_any = false;
    for (const Function *callee : callees) {
      if (objects.object_of.count(&call) || objects.freed_by.count(&call)) continue;
      is_any = true;
      // What is handed to the outside may be called or not.
      if (callee->isDeclaration()) { common = none; continue; }
      effect.allocs |= allocs[callee];
      common &= frees_of(*callee);
    }
    if (is_any && is_mine) effect.frees |= common;
    return effect;
  }

  const Effect &effect(const CallBase &call) {
    auto found = effects.find(&call);
    if (found == effects.end()) found = effects.emplace(&call, effect_of(call)).first;
    return found->second;
  }

  /// Objects that a call of the function always frees.
  Set frees_of(const Function &function) {
    auto found = frees.find(&function);
    if (found != frees.end()) return found->second;
    frees.emplace(&function, none); // while it is being computed: a recursive call frees nothing for sure
    SetVector<const BasicBlock *> blocks;
    for (const BasicBlock &block : function) blocks.insert(&block);
    Set result = every;
    auto in = before(blocks, {&function.getEntryBlock()});
    bool returns = false;
    for (const BasicBlock &block : function)
      if (isa<ReturnInst>(block.getTerminator()) && in.count(&block)) {
        returns = true;
        result &= through(in[&block], block, nullptr);
      }
    if (!returns) result = none;
    return frees[&function] = result;
  }

  Set through(Set state, const BasicBlock &block, const Instruction *until) {
    for (const Instruction &instruction : block) {
      if (&instruction == until) break;
      if (const auto *call = dyn_cast<CallBase>(&instruction)) {
        const Effect &e = effect(*call);
        state.reset(e.allocs);
        state |= e.frees;
      }
    }
    return state;
  }

  /// Objects for which null on this branch says that there is none.
  Set absent(const BasicBlock &from, const BasicBlock &to) const {
    Set result = none;
    const auto *branch = dyn_cast<BranchInst>(from.getTerminator());
    if (!branch || !branch->isConditional()) return result;
    const auto *compare = dyn_cast<ICmpInst>(branch->getCondition());
    if (!compare || !compare->isEquality() || !isa<ConstantPointerNull>(compare->getOperand(1))) return result;
    bool is_null_when_true = compare->getPredicate() == ICmpInst::ICMP_EQ;
    if (branch->getSuccessor(is_null_when_true ? 0 : 1) != &to || branch->getSuccessor(0) == branch->getSuccessor(1)) return result;
    const Value *pointer = compare->getOperand(0);
    std::set<unsigned> found;
    for (const Target *target : calls.pointers.targets(pointer))
      if (target->kind == Target::block)
        if (auto known = objects.object_of.find(cast<CallBase>(target->value)); known != objects.object_of.end()) found.insert(known->second);
    if (found.size() != 1 || !is_single(*found.begin()) || !is_own(pointer)) return result;
    // Null there says that there is none only if no other field holds it.
    const auto *load = dyn_cast<LoadInst>(pointer);
    Cell cell;
    bool is_only_holder = load && cell_of(load->getPointerOperand(), calls.module, cell) && objects.all[*found.begin()].holders == std::vector<Cell>{cell};
    if (is_only_holder || isa<CallBase>(pointer)) result.set(*found.begin());
    return result;
  }

  /// What is freed on every path up to the begin of each block.
  std::map<const BasicBlock *, Set> before(const SetVector<const BasicBlock *> &blocks, const std::set<const BasicBlock *> &starts) {
    std::map<const BasicBlock *, Set> in;
    bool is_changed = true;
    while (is_changed) {
      is_changed = false;
      for (const BasicBlock *block : blocks) {
        std::optional<Set> state;
        if (starts.count(block)) state = none;
        for (const BasicBlock *previous : predecessors(block)) {
          auto known = in.find(previous);
          if (known == in.end()) continue;
          Set out = unite(through(known->second, *previous, nullptr), absent(*previous, *block));
          state = state ? meet(*state, out) : out;
        }
        if (!state) continue;
        auto [old, is_new] = in.emplace(block, *state);
        if (is_new || old->second != *state) {
          // Descending: what was assumed freed on the way may turn out not to be.
          if (!is_new) *state &= old->second;
          if (is_new || old->second != *state) old->second = *state, is_changed = true;
        }
      }
    }
    return in;
  }

  struct After { Set dead, maybe_live; }; ///< dead at the end whatever it is now; maybe live whatever it is now

  After back(After state, const BasicBlock &block, const Instruction *from) {
    for (auto it = block.rbegin(); it != block.rend() && &*it != from; ++it)
      if (const auto *call = dyn_cast<CallBase>(&*it)) {
        const Effect &e = effect(*call);
        state.dead |= without(e.frees, state.maybe_live);
        state.maybe_live |= without(without(e.allocs, state.dead), e.frees);
      }
    return state;
  }

  std::map<const BasicBlock *, After> after(const SetVector<const BasicBlock *> &blocks) {
    std::map<const BasicBlock *, After> out; // at the end of each block
    std::vector<const BasicBlock *> order(blocks.rbegin(), blocks.rend());
    bool is_changed = true;
    while (is_changed) {
      is_changed = false;
      for (const BasicBlock *block : order) {
        std::optional<After> state;
        if (succ_empty(block)) state = isa<UnreachableInst>(block->getTerminator()) ? After{every, none} : After{none, none};
        for (const BasicBlock *next : successors(block)) {
          After there{none, none};
          if (blocks.count(next)) {
            auto known = out.find(next);
            if (known == out.end()) continue;
            there = back(known->second, *next, nullptr);
            there.dead |= without(absent(*block, *next), there.maybe_live);
          }
          if (!state) state = there;
          else state->dead &= there.dead, state->maybe_live |= there.maybe_live;
        }
        if (!state) continue;
        auto [old, is_new] = out.emplace(block, *state);
        if (is_new) { is_changed = true; continue; }
        After next{meet(state->dead, old->second.dead), unite(state->maybe_live, old->second.maybe_live)};
        if (next.dead != old->second.dead || next.maybe_live != old->second.maybe_live) old->second = next, is_changed = true;
      }
    }
    return out;
  }

  /// Objects that are gone after the stage ran along a path through one of the places.
  Set dead_over(unsigned stage, const std::vector<const Instruction *> &places) {
    const Stage &s = graph.stages[stage];
    std::map<const Function *, std::optional<Set>> memo;
    Set result = every;
    bool is_any = false;
    auto region = [&](const SetVector<const BasicBlock *> &blocks, const std::set<const BasicBlock *> &starts) {
      if (auto part = dead_in(s, blocks, starts, places, memo)) result &= *part, is_any = true;
    };
    if (!s.blocks.empty()) region(s.blocks, s.starts);
    if (s.function) {
      SetVector<const BasicBlock *> blocks;
      for (const BasicBlock &block : *s.function) blocks.insert(&block);
      region(blocks, {&s.function->getEntryBlock()});
    }
    return is_any ? result : none;
  }

  std::optional<Set> dead_in(const Stage &stage, const SetVector<const BasicBlock *> &blocks, const std::set<const BasicBlock *> &starts, const std::vector<const Instruction *> &places,
                             std::map<const Function *, std::optional<Set>> &memo) {
    std::vector<std::pair<const Instruction *, Set>> events; // with what is dead within
    for (const BasicBlock *block : blocks)
      for (const Instruction &instruction : *block) {
        if (is_contained(places, &instruction)) { events.push_back({&instruction, none}); continue; }
        const auto *call = dyn_cast<CallBase>(&instruction);
        if (!call) continue;
        for (const Function *callee : calls.pointers.callees(*call)) {
          if (!stage.functions.count(callee) || callee->isDeclaration()) continue;
          auto known = memo.find(callee);
          if (known == memo.end()) {
            memo[callee] = std::nullopt; // recursion: the outer call counts
            SetVector<const BasicBlock *> inner;
            for (const BasicBlock &b : *callee) inner.insert(&b);
            known = memo.insert_or_assign(callee, dead_in(stage, inner, {&callee->getEntryBlock()}, places, memo)).first;
          }
          if (known->second) events.push_back({&instruction, *known->second});
        }
      }
    if (events.empty()) return std::nullopt;
    auto in = before(blocks, starts);
    auto out = after(blocks);
    Set result = every;
    for (auto &[at, within] : events) {
      const BasicBlock *block = at->getParent();
      Set freed = in.count(block) ? through(in[block], *block, at) : none;
      Set made = none;
      if (const auto *call = dyn_cast<CallBase>(at)) made = effect(*call).allocs;
      After later = back(out.count(block) ? out[block] : After{none, none}, *block, at);
      Set gone = unite(within, without(freed, made));
      result &= unite(later.dead, without(gone, later.maybe_live));
    }
    return result;
  }

  /// Request objects that hold an object, directly or through others.
  std::set<unsigned> owners(unsigned object) const {
    std::set<unsigned> found, seen;
    std::vector<unsigned> work{object};
    while (!work.empty()) {
      unsigned o = work.back();
      work.pop_back();
      if (!seen.insert(o).second) continue;
      if (objects.all[o].is_request) found.insert(o);
      for (const Cell &cell : objects.all[o].holders)
        for (unsigned other = 0; other < count; other++)
          if (objects.all[other].record == cell.record) work.push_back(other);
    }
    return found;
  }

  struct End { unsigned stage; Set dead; };

  /// Where a request object is freed, and what is gone then.
  std::vector<End> ends_of(unsigned request) {
    std::map<unsigned, std::vector<const Instruction *>> places;
    for (const Site &site : objects.all[request].free)
      for (unsigned stage : site.stages) places[stage].push_back(site.call);
    std::vector<End> ends;
    for (auto &[stage, at] : places) ends.push_back({stage, dead_over(stage, at)});
    return ends;
  }

  /// An object leaks if its request can end without it having been freed, or if it can be allocated again.
  void find_leaks(const std::vector<Set> &at, const std::vector<Set> &dead) {
    std::map<unsigned, std::vector<End>> ends;
    for (unsigned o = 0; o < count; o++)
      if (objects.all[o].is_request) ends[o] = ends_of(o);
    for (unsigned o = 0; o < count; o++) {
      Object &object = objects.all[o];
      if (object.free.empty()) continue;
      bool is_freed = true, has_end = false;
      if (object.is_request) {
        std::set<unsigned> reaches;
        for (const End &end : ends[o]) reaches.insert(end.stage);
        bool is_changed = true;
        while (is_changed) {
          is_changed = false;
          for (const Edge &edge : graph.edges)
            if (reaches.count(edge.to) && reaches.insert(edge.from).second) is_changed = true;
        }
        is_freed = !reaches.empty();
        for (unsigned stage : object.live) is_freed &= reaches.count(stage) != 0;
        object.is_freed_on_every_path = is_freed;
        continue;
      }
      if (object.scope == Object::request)
        for (unsigned request : owners(o))
          for (const End &end : ends[request]) {
            has_end = true;
            if (at[end.stage].test(o) && !end.dead.test(o)) is_freed = false;
          }
      if (!has_end)
        for (unsigned i = 0; i < graph.edges.size(); i++) {
          const Edge &edge = graph.edges[i];
          bool is_carried = at[edge.from].test(o) && !dead[i].test(o);
          bool is_made_again = any_of(object.alloc, [&](const Site &site) { return is_contained(site.stages, edge.to); });
          if (is_carried && (is_made_again || object.scope == Object::temporary)) is_freed = false;
        }
      // A stage that nothing follows, and that does not free it.
      for (unsigned i = 0; !has_end && i < at.size(); i++) {
        bool has_next = any_of(graph.edges, [&](const Edge &edge) { return edge.from == i; });
        bool frees = any_of(object.free, [&](const Site &site) { return is_contained(site.stages, i); });
        if (!has_next && at[i].test(o) && !frees) is_freed = false;
      }
      object.is_freed_on_every_path = is_freed;
    }
  }

  const Calls &calls;
  const StageGraph &graph;
  Objects &objects;
  unsigned count;
  Set none, every;
  std::map<const Function *, Set> allocs, frees;
  std::map<const CallBase *, Effect> effects;
  std::set<std::string> owned;               ///< structures that belong to requests
  std::set<const Value *> own_values;        ///< requests whose state a dispatcher looks at
};

} // namespace

void find_lifetimes(const Calls &calls, const StageGraph &graph, Objects &objects) { Lifetimes(calls, graph, objects).run(); }

} // namespace stingy
