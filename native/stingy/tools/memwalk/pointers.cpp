#include "pch.h"
#include "memwalk/pointers.h"

using namespace llvm;

namespace stingy {
namespace {

std::string plain_name(const StructType &type) {
  if (!type.hasName()) return "";
  StringRef name = type.getName();
  for (const char *prefix : {"struct.", "union.", "class."}) name.consume_front(prefix);
  if (name == "anon" || name.starts_with("anon.")) return "";
  // The linker numbers types of one name whose definitions differ; they are joined again here.
  size_t dot = name.rfind('.');
  if (dot != StringRef::npos && dot + 1 < name.size() && all_of(name.substr(dot + 1), isDigit)) name = name.substr(0, dot);
  return name.str();
}

/// Walks `offset` bytes into a type, to the innermost named structure.
void descend(Type *type, uint64_t offset, const DataLayout &layout, Cell &cell) {
  while (true) {
    if (auto *record = dyn_cast<StructType>(type)) {
      if (std::string name = plain_name(*record); !name.empty()) cell = {name, offset};
      const StructLayout *fields = layout.getStructLayout(record);
      if (record->getNumElements() == 0 || offset >= fields->getSizeInBytes()) return;
      unsigned element = fields->getElementContainingOffset(offset);
      offset -= fields->getElementOffset(element);
      type = record->getElementType(element);
    } else if (auto *array = dyn_cast<ArrayType>(type)) {
      uint64_t size = layout.getTypeAllocSize(array->getElementType());
      if (size == 0) return;
      offset %= size;
      type = array->getElementType();
      if (!isa<StructType>(type) && !isa<ArrayType>(type)) { if (!cell.record.empty()) cell.offset -= std::min(cell.offset, offset); return; }
    } else return;
  }
}

bool is_string_function(StringRef name) {
  static const char *const names[] = {"strchr", "strrchr", "strstr", "strcasestr", "strpbrk", "strtok", "strtok_r", "strsep", "memchr", "memrchr", "memcpy", "memmove", "mempcpy",
                                      "memset", "strcpy", "strncpy", "strcat", "strncat", "stpcpy", "index", "rindex", "basename", "dirname", "fgets", "realpath", "inet_ntop", "strchrnul", "rawmemchr"};
  return is_contained(names, name);
}

} // namespace

bool cell_of(const Value *address, const Module &module, Cell &cell) {
  const DataLayout &layout = module.getDataLayout();
  if (const auto *global = dyn_cast<GlobalVariable>(address)) {
    Cell found;
    descend(global->getValueType(), 0, layout, found);
    if (found.record.empty()) return false;
    cell = found;
    return true;
  }
  const auto *gep = dyn_cast<GEPOperator>(address);
  if (!gep) return false;
  Type *type = gep->getSourceElementType();
  if (type->isIntegerTy(8)) {
    // Constants are addressed by bytes since LLVM 19.
    APInt offset(64, 0);
    const auto *global = dyn_cast<GlobalVariable>(gep->getPointerOperand());
    if (!global || !gep->accumulateConstantOffset(layout, offset) || offset.isNegative()) return false;
    Cell found;
    descend(global->getValueType(), offset.getZExtValue(), layout, found);
    if (found.record.empty()) return false;
    cell = found;
    return true;
  }
  Cell found;
  bool is_field = false;
  uint64_t offset = 0; // from the begin of the innermost named structure
  auto index = gep->idx_begin();
  if (index == gep->idx_end()) return false;
  for (++index; index != gep->idx_end(); ++index) {
    if (auto *record = dyn_cast<StructType>(type)) {
      unsigned element = cast<ConstantInt>(*index)->getZExtValue();
      std::string name = plain_name(*record);
      if (!name.empty()) found = {name, 0}, offset = 0;
      offset += layout.getStructLayout(record)->getElementOffset(element);
      type = record->getElementType(element);
      is_field = true;
    } else if (auto *array = dyn_cast<ArrayType>(type)) type = array->getElementType();
    else return false;
  }
  // An element of an array that is a field.
  if (!is_field) return isa<ArrayType>(gep->getSourceElementType()) && isa<GEPOperator>(gep->getPointerOperand()) && cell_of(gep->getPointerOperand(), module, cell);
  if (found.record.empty()) {
    Cell base;
    if (cell_of(gep->getPointerOperand(), module, base)) found = {base.record, base.offset};
    else found.record = cast<StructType>(gep->getSourceElementType())->hasName() ? cast<StructType>(gep->getSourceElementType())->getName().str() : "(unnamed)";
    offset += found.offset;
  }
  found.offset = offset;
  cell = found;
  return true;
}

Pointers::Pointers(Module &module, const Config &config, const Allocators &allocators, bool is_sound) : module(module), config(config), allocators(allocators) {
  new_node(); // 0 stays empty: integers, null
  all_targets.push_back({});
  contents_of.push_back(0);
  for (Function &function : module) {
    function.removeDeadConstantUsers();
    for (const Use &use : function.uses()) {
      const auto *call = dyn_cast<CallBase>(use.getUser());
      if (!call || !call->isCallee(&use)) { address_taken.insert(&function); break; }
    }
  }
  add_constraints();
  solve();
  resolve_by_type(is_sound);
  solve();
  for (Function *function : address_taken)
    if (allocators.free_of(*function)) {
      const Instruction *at = nullptr;
      for (const User *user : function->users())
        if (const auto *instruction = dyn_cast<Instruction>(user); instruction && !at)
          if (const auto *call = dyn_cast<CallBase>(instruction); !call || call->getCalledOperand() != function) at = instruction;
      doubts.push_back({"free_by_pointer", at, "the address of " + source_name(*function) + " is handed on; what is freed through it is not seen", "call it by name"});
    }
  for (CallBase *call : indirect) {
    sum.total++;
    auto &found = resolved[call];
    sum.max_targets = std::max(sum.max_targets, unsigned(found.size()));
    Cell cell;
    const auto *load = dyn_cast<LoadInst>(call->getCalledOperand()->stripPointerCasts());
    if (found.empty()) {
      sum.unresolved++;
      doubts.push_back({"unresolved_call", call, "a call through a pointer that nothing known is stored in", "if the function comes from outside (dlsym), nothing; else give the field a value by name"});
    } else if (by_type_only.count(call)) {
      sum.by_type++;
      doubts.push_back({"resolved_by_type", call, "no function was seen to flow to this call; the " + std::to_string(found.size()) + " of its type whose address is taken were assumed", "assign the pointer by name, or accept"});
    } else if (load && cell_of(load->getPointerOperand(), module, cell)) sum.by_field++;
    else sum.by_argument++;
  }
}

unsigned Pointers::new_node() {
  graph.emplace_back();
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
  if (contents_of[index]) return contents_of[index];
  const Target &t = all_targets[index];
  if (t.kind == Target::function) return 0;
  Cell first;
  Type *type = nullptr;
  if (t.kind == Target::global) type = cast<GlobalVariable>(t.value)->getValueType();
  if (t.kind == Target::local) type = cast<AllocaInst>(t.value)->getAllocatedType();
  // The begin of a structure is its first field.
  if (type) descend(type, 0, module.getDataLayout(), first);
  unsigned node = first.record.empty() ? new_node() : content(cell_target(first));
  contents_of[index] = node;
  return node;
}

unsigned Pointers::node_of(const Value *value) {
  if (!value->getType()->isPointerTy() && !isa<Instruction>(value) && !isa<Argument>(value)) return 0;
  auto found = nodes.find(value);
  if (found != nodes.end()) return found->second;
  unsigned node = new_node();
  nodes[value] = node;
  Cell cell;
  if (auto *function = dyn_cast<Function>(value)) add_target(node, target({Target::function, const_cast<Function *>(function), {}}, function));
  else if (auto *global = dyn_cast<GlobalVariable>(value)) add_target(node, target({Target::global, const_cast<GlobalVariable *>(global), {}}, global));
  else if (auto *local = dyn_cast<AllocaInst>(value)) add_target(node, target({Target::local, const_cast<AllocaInst *>(local), {}}, local));
  else if (const auto *gep = dyn_cast<GEPOperator>(value)) {
    if (cell_of(value, module, cell)) add_target(node, cell_target(cell));
    else add_copy(node_of(gep->getPointerOperand()), node);
  } else if (const auto *expression = dyn_cast<ConstantExpr>(value)) {
    if (expression->isCast()) add_copy(node_of(expression->getOperand(0)), node);
  } else if (const auto *alias = dyn_cast<GlobalAlias>(value)) add_copy(node_of(alias->getAliasee()), node);
  return node;
}

void Pointers::add_target(unsigned node, unsigned index) {
  if (node && graph[node].points_to.test_and_set(index)) queue(node);
}

void Pointers::add_copy(unsigned from, unsigned to) {
  if (!from || !to || from == to || !edges.insert({from, to}).second) return;
  graph[from].copies.push_back(to);
  if ((graph[to].points_to |= graph[from].points_to)) queue(to);
}

void Pointers::add_initializer(const Constant *value, const Type *type, unsigned into, const Cell *within) {
  if (const auto *aggregate = dyn_cast<ConstantAggregate>(value)) {
    const auto *record = dyn_cast<StructType>(aggregate->getType());
    for (unsigned i = 0; i < aggregate->getNumOperands(); i++) {
      const Constant *element = aggregate->getOperand(i);
      if (!record) { add_initializer(element, element->getType(), into, within); continue; }
      std::string name = plain_name(*record);
      uint64_t offset = module.getDataLayout().getStructLayout(const_cast<StructType *>(record))->getElementOffset(i);
      Cell cell = name.empty() ? Cell{within ? within->record : record->hasName() ? record->getName().str() : "(unnamed)", (within ? within->offset : 0) + offset} : Cell{name, offset};
      add_initializer(element, element->getType(), content(cell_target(cell)), &cell);
    }
  } else if (value->getType()->isPointerTy() && !value->isNullValue()) add_copy(node_of(value), into);
}

void Pointers::add_constraints() {
  for (GlobalVariable &global : module.globals())
    if (global.hasInitializer()) {
      unsigned into = content(target({Target::global, &global, {}}, &global));
      // A constant structure written with another layout (a union's member) has no name: its fields are those of the type.
      Cell first;
      descend(global.getValueType(), 0, module.getDataLayout(), first);
      add_initializer(global.getInitializer(), global.getValueType(), into, first.record.empty() ? nullptr : &first);
    }
  for (Function &function : module) {
    if (function.isDeclaration()) continue;
    for (Instruction &instruction : instructions(function)) {
      if (auto *load = dyn_cast<LoadInst>(&instruction)) {
        if (!load->getType()->isPointerTy() && !load->getType()->isIntegerTy(64)) continue;
        unsigned address = node_of(load->getPointerOperand()), into = node_of(load);
        graph[address].loads.push_back(into);
        queue(address);
      } else if (auto *store = dyn_cast<StoreInst>(&instruction)) {
        Value *value = store->getValueOperand();
        if (!value->getType()->isPointerTy() && !(value->getType()->isIntegerTy(64) && isa<Instruction>(value))) continue;
        unsigned address = node_of(store->getPointerOperand()), from = node_of(value);
        if (!from) continue;
        graph[address].stores.push_back(from);
        queue(address);
      } else if (auto *phi = dyn_cast<PHINode>(&instruction)) {
        if (phi->getType()->isPointerTy() || phi->getType()->isIntegerTy(64))
          for (Value *value : phi->incoming_values()) add_copy(node_of(value), node_of(phi));
      } else if (auto *select = dyn_cast<SelectInst>(&instruction)) {
        if (select->getType()->isPointerTy()) add_copy(node_of(select->getTrueValue()), node_of(select)), add_copy(node_of(select->getFalseValue()), node_of(select));
      } else if (isa<PtrToIntInst>(instruction) || isa<IntToPtrInst>(instruction) || isa<FreezeInst>(instruction) || isa<BitCastInst>(instruction)) {
        add_copy(node_of(instruction.getOperand(0)), node_of(&instruction));
        if (isa<IntToPtrInst>(instruction) && !isa<PtrToIntInst>(instruction.getOperand(0)) && !isa<Constant>(instruction.getOperand(0)))
          for (const User *user : instruction.users())
            if (const auto *call = dyn_cast<CallBase>(user); call && call->getCalledOperand() == &instruction)
              doubts.push_back({"pointer_from_integer", &instruction, "a function is called whose address was made from an integer", "keep function pointers in pointers"});
      } else if (auto *binary = dyn_cast<BinaryOperator>(&instruction)) {
        // Pointer arithmetic on integers, and tag bits.
        if (binary->getType()->isIntegerTy(64)) add_copy(node_of(binary->getOperand(0)), node_of(binary)), add_copy(node_of(binary->getOperand(1)), node_of(binary));
      } else if (auto *ret = dyn_cast<ReturnInst>(&instruction)) {
        if (ret->getReturnValue() && ret->getReturnValue()->getType()->isPointerTy()) {
          auto [found, is_new] = returns.try_emplace(&function, 0);
          if (is_new) found->second = new_node();
          unsigned into = found->second;
          add_copy(node_of(ret->getReturnValue()), into);
        }
      } else if (auto *call = dyn_cast<CallBase>(&instruction)) add_call(*call);
      else if (auto *gep = dyn_cast<GetElementPtrInst>(&instruction)) node_of(gep);
    }
  }
}

void Pointers::add_call(CallBase &call) {
  if (call.isInlineAsm() || isa<DbgInfoIntrinsic>(call)) return;
  auto *callee = dyn_cast<Function>(call.getCalledOperand()->stripPointerCasts());
  if (!callee) {
    indirect.push_back(&call);
    resolved.try_emplace(&call);
    unsigned called = node_of(call.getCalledOperand());
    graph[called].calls.push_back({&call, -1});
    queue(called);
    return;
  }
  if (isa<MemTransferInst>(call)) {
    unsigned to = node_of(call.getArgOperand(0)), from = node_of(call.getArgOperand(1));
    graph[from].copies_content_to.push_back(to);
    graph[to].copies_content_from.push_back(from);
    queue(from);
    return;
  }
  if (callee->isIntrinsic()) return;
  resolved[&call].push_back(callee);
  if (const Allocator *allocator = allocators.malloc_of(*callee)) {
    add_target(node_of(&call), target({Target::block, &call, {}}, &call));
    if (allocator->pointer >= 0 && unsigned(allocator->pointer) < call.arg_size()) {
      // What the old block held, the new one holds.
      unsigned from = node_of(call.getArgOperand(allocator->pointer));
      add_copy(from, node_of(&call));
    }
    return;
  }
  if (allocators.free_of(*callee)) return;
  if (!callee->isDeclaration()) {
    link(call, *callee);
    return;
  }
  if (call.getType()->isPointerTy() && call.arg_size() && is_string_function(callee->getName())) add_copy(node_of(call.getArgOperand(0)), node_of(&call));
  auto range = config.callbacks.equal_range(callee->getName().str());
  bool is_known = range.first != range.second;
  for (auto it = range.first; it != range.second; ++it)
    if (it->second.argument >= 0 && unsigned(it->second.argument) < call.arg_size()) {
      unsigned node = node_of(call.getArgOperand(it->second.argument));
      graph[node].calls.push_back({&call, it->second.argument + (it->second.later ? 64 : 0)});
      queue(node);
    }
  if (is_known) return;
  for (unsigned i = 0; i < call.arg_size(); i++)
    if (auto *function = dyn_cast<Function>(call.getArgOperand(i)->stripPointerCasts())) {
      link_callback(call, *function, false);
      doubts.push_back({"unknown_callback", &call, function->getName().str() + " is handed to " + callee->getName().str() + ", which is from outside; taken as called at once",
                        "[[callback]] function = \"" + callee->getName().str() + "\", argument = " + std::to_string(i) + ", and later = true if the event loop calls it"});
    }
}

void Pointers::link(CallBase &call, Function &callee) {
  for (unsigned i = 0; i < call.arg_size() && i < callee.arg_size(); i++) {
    Value *argument = call.getArgOperand(i);
    if (argument->getType()->isPointerTy() || argument->getType()->isIntegerTy(64)) add_copy(node_of(argument), node_of(callee.getArg(i)));
  }
  if (callee.isVarArg())
    for (unsigned i = callee.arg_size(); i < call.arg_size(); i++)
      if (isa<Function>(call.getArgOperand(i)->stripPointerCasts()))
        doubts.push_back({"variadic_function", &call, "a function is passed among variable arguments of " + callee.getName().str() + "; its calls are not seen", "pass it as a named parameter"});
  if (call.getType()->isPointerTy()) {
    auto [found, is_new] = returns.try_emplace(&callee, 0);
    if (is_new) found->second = new_node();
    add_copy(found->second, node_of(&call));
  }
}

void Pointers::link_callback(CallBase &call, Function &callee, bool is_later) {
  // Whatever pointer the outside was given, it may hand on.
  for (Argument &parameter : callee.args())
    if (parameter.getType()->isPointerTy())
      for (Value *argument : call.args())
        if (argument->getType()->isPointerTy()) add_copy(node_of(argument), node_of(&parameter));
  if (is_later) {
    later.insert(&callee);
    if (const Function *outside = call.getCalledFunction(); outside && outside->getName().contains("thread_create")) threads.insert(&callee);
  } else if (auto &found = resolved[&call]; !is_contained(found, &callee)) found.push_back(&callee);
}

void Pointers::solve() {
  for (size_t next = 0; next < work.size(); next++) {
    // The list only grows at its end; what is behind is dropped from time to time.
    if (next > 1u << 16) {
      work.erase(work.begin(), work.begin() + next);
      next = 0;
    }
    unsigned n = work[next];
    graph[n].is_queued = false;
    SparseBitVector<> fresh;
    fresh.intersectWithComplement(graph[n].points_to, graph[n].done);
    if (fresh.empty()) continue;
    graph[n].done |= fresh;
    for (unsigned index : fresh) {
      const Target t = all_targets[index];
      if (t.kind == Target::function) {
        for (size_t i = 0; i < graph[n].calls.size(); i++) {
          auto [call, argument] = graph[n].calls[i];
          auto *function = cast<Function>(t.value);
          if (argument >= 0) { link_callback(*call, *function, argument >= 64); continue; }
          auto &found = resolved[call];
          bool fits = function->arg_size() <= call->arg_size() || function->isVarArg();
          if (!fits || is_contained(found, function)) continue;
          found.push_back(function);
          if (!function->isDeclaration()) link(*call, *function);
        }
        continue;
      }
      if (graph[n].loads.empty() && graph[n].stores.empty() && graph[n].copies_content_to.empty() && graph[n].copies_content_from.empty()) continue;
      unsigned inside = content(index);
      for (size_t i = 0; i < graph[n].loads.size(); i++) add_copy(inside, graph[n].loads[i]);
      for (size_t i = 0; i < graph[n].stores.size(); i++) add_copy(graph[n].stores[i], inside);
      for (size_t i = 0; i < graph[n].copies_content_to.size(); i++) {
        SparseBitVector<> others = graph[graph[n].copies_content_to[i]].points_to;
        for (unsigned other : others)
          if (all_targets[other].kind != Target::function) add_copy(inside, content(other));
      }
      for (size_t i = 0; i < graph[n].copies_content_from.size(); i++) {
        SparseBitVector<> others = graph[graph[n].copies_content_from[i]].points_to;
        for (unsigned other : others)
          if (all_targets[other].kind != Target::function) add_copy(content(other), inside);
      }
    }
    for (size_t i = 0; i < graph[n].copies.size(); i++) {
      unsigned to = graph[n].copies[i];
      if ((graph[to].points_to |= fresh)) queue(to);
    }
  }
  work.clear();
}

void Pointers::queue(unsigned node) {
  if (graph[node].is_queued) return;
  graph[node].is_queued = true;
  work.push_back(node);
}

void Pointers::resolve_by_type(bool is_for_all) {
  for (CallBase *call : indirect) {
    auto &found = resolved[call];
    if (!found.empty() && !is_for_all) continue;
    bool was_empty = found.empty();
    for (Function *function : address_taken) {
      FunctionType *type = function->getFunctionType(), *wanted = call->getFunctionType();
      bool fits = type->getReturnType() == wanted->getReturnType() && type->getNumParams() == wanted->getNumParams();
      for (unsigned i = 0; fits && i < type->getNumParams(); i++) fits = type->getParamType(i) == wanted->getParamType(i);
      if (!fits || is_contained(found, function)) continue;
      found.push_back(function);
      if (!function->isDeclaration()) link(*call, *function);
    }
    if (was_empty && !found.empty()) by_type_only.insert(call);
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
    for (unsigned index : graph[found->second].points_to) all.push_back(&all_targets[index]);
  return all;
}

std::vector<const Target *> Pointers::contents(const Cell &cell) const {
  std::vector<const Target *> all;
  auto found = target_of_cell.find(cell);
  if (found != target_of_cell.end() && contents_of[found->second])
    for (unsigned index : graph[contents_of[found->second]].points_to) all.push_back(&all_targets[index]);
  return all;
}

std::vector<Cell> Pointers::holders(const CallBase &block) const {
  std::vector<Cell> all;
  auto key = target_of_value.find(&block);
  if (key == target_of_value.end()) return all;
  for (auto &[cell, index] : target_of_cell)
    if (contents_of[index] && graph[contents_of[index]].points_to.test(key->second)) all.push_back(cell);
  return all;
}

std::vector<const Value *> Pointers::global_holders(const CallBase &block) const {
  std::vector<const Value *> all;
  auto key = target_of_value.find(&block);
  if (key == target_of_value.end()) return all;
  for (size_t i = 1; i < all_targets.size(); i++)
    if (all_targets[i].kind == Target::global && contents_of[i]) {
      auto points_to = graph[contents_of[i]].points_to;
      if (points_to.test(key->second)) all.push_back(all_targets[i].value);
    }
  return all;
}

} // namespace stingy
