#include "pch.h"
#include "memwalk/stages.h"
#include "memwalk/regions.h"
#include "memwalk/state_field.h"
#include "input/paths.h"

using namespace llvm;

namespace stingy {

bool Stage::contains(const Instruction &instruction) const {
  return blocks.count(instruction.getParent()) || functions.count(instruction.getFunction());
}

std::vector<unsigned> StageGraph::stages_of(const Instruction &instruction) const {
  std::vector<unsigned> all;
  for (unsigned i = 0; i < stages.size(); i++)
    if (stages[i].contains(instruction)) all.push_back(i);
  return all;
}

std::string field_name(const Facts &facts, const Cell &cell) {
  auto record = facts.records.find(cell.record);
  if (record == facts.records.end()) return "";
  for (const Field &field : record->second.fields)
    if (field.offset == cell.offset) return field.name;
  // Within an array or a structure that is a member.
  for (const Field &field : record->second.fields)
    if (field.offset <= cell.offset && cell.offset < field.offset + field.bytes) return field.name;
  return "";
}

namespace {

class Finder {
public:
  Finder(const Program &program, const Config &config, const Calls &calls, StageGraph &graph, std::string &error)
      : program(program), config(config), calls(calls), module(calls.module), graph(graph), error(error) {}

  bool run() {
    if (!find_scheduler() || !find_state()) return false;
    for (auto &[name, call] : config.schedule_stage) schedule_functions.insert(function_named(name));
    for (auto &[name, call] : config.queue_stage) queue_functions.insert(function_named(name));
    if (!add_configured()) return false;
    if (is_function_state() || stages_are_functions_of_queue()) add_function_stages();
    else if (has_state()) add_value_stages();
    add_schedule_argument_stages();
    if (graph.stages.empty()) {
      error = "no stages found: no structure has a field whose value a switch or ifs choose code by and that is assigned constants, and no field of functions that "
              "is assigned several. Say which: [scheduler] state = \"structure.field\" in stingy.toml, [[queue_stage]] with the function that queues, or a [[stage]] for "
              "each function that begins one (native/stingy/README.md)";
      return false;
    }
    for (const Function *function : queue_functions) graph.dispatchers.erase(function);
    for (Stage &stage : graph.stages) close(stage);
    add_entries();
    for (unsigned i = 0; i < graph.stages.size(); i++) add_edges(i);
    for (const NamedStage &named : config.stages)
      for (const std::string &before : named.after)
        if (!add_told_edge(named, before)) return false;
    std::sort(graph.edges.begin(), graph.edges.end(), [&](const Edge &a, const Edge &b) {
      auto key = [&](const Edge &e) { Place p = e.at ? place_of(*e.at) : Place{}; return std::make_tuple(e.from, e.to, p.file, p.line); };
      return key(a) < key(b);
    });
    std::vector<Edge> joined;
    for (Edge &edge : graph.edges) {
      if (joined.empty() || joined.back().from != edge.from || joined.back().to != edge.to) joined.push_back(edge);
      if (edge.at && !is_contained(joined.back().places, edge.at)) joined.back().places.push_back(edge.at);
    }
    graph.edges = std::move(joined);
    return true;
  }

private:
  /// A function by its name in the source; static ones too.
  Function *function_named(const std::string &name) const {
    if (Function *function = module.getFunction(name); function) return function;
    for (Function &function : module)
      if (!function.isDeclaration() && source_name(function) == name) return &function;
    return nullptr;
  }

  bool find_scheduler() {
    if (config.scheduler.empty()) return true;
    graph.scheduler = function_named(config.scheduler);
    if (graph.scheduler && !graph.scheduler->isDeclaration()) return true;
    error = config.scheduler_place.text() + ": the program has no function `" + config.scheduler + "`; name the function of the event loop";
    return false;
  }

  bool find_state() {
    for (auto *table : {&config.queue_stage, &config.schedule_stage})
      for (auto &[name, call] : *table) {
        const Function *function = function_named(name);
        if (!function) {
          error = call.place.text() + ": the program has no function `" + name + "`; correct the name";
          return false;
        }
        if (call.stage >= int(function->arg_size())) {
          error = call.place.text() + ": " + name + " has " + std::to_string(function->arg_size()) + " arguments; `stage` counts from 0";
          return false;
        }
      }
    if (!config.state_type.empty()) {
      std::string record = program.facts.record_named(config.state_type);
      const Field *field = record.empty() ? nullptr : program.facts.records.at(record).find(config.state_field);
      if (!field) {
        error = config.state_place.text() + ": " + (record.empty() ? "the program has no structure `" + config.state_type + "`" : "the structure " + config.state_type + " has no field `" + config.state_field + "`") +
                "; write state = \"structure.field\"";
        return false;
      }
      graph.state = {record, field->offset};
      graph.state_type = config.state_type, graph.state_field = config.state_field;
      is_functions = field->is_function || field->is_pointer;
      return true;
    }
    if (!config.queue_stage.empty() || !config.stages.empty()) return true;
    StateField guess;
    if (!guess_state_field(program, calls, guess)) return true;
    graph.state = guess.cell;
    graph.state_type = guess.cell.record;
    graph.state_field = field_name(program.facts, guess.cell);
    is_functions = guess.is_function;
    for (const std::string &other : guess.others)
      graph.doubts.push_back({"state_guessed", nullptr, graph.state_type + "." + graph.state_field + " was taken as the field that holds a request's stage; " + other + " looks like one, too",
                              "[scheduler] state = \"structure.field\""});
    return true;
  }

  bool has_state() const { return !graph.state.record.empty(); }
  bool is_function_state() const { return has_state() && is_functions; }
  bool stages_are_functions_of_queue() const {
    for (auto &[name, call] : config.queue_stage)
      if (const Function *function = function_named(name); function && call.stage >= 0 && function->getArg(call.stage)->getType()->isPointerTy()) return true;
    return false;
  }

  bool add_configured() {
    for (const NamedStage &named : config.stages) {
      Function *entry = function_named(named.entry);
      if (!entry || entry->isDeclaration()) {
        error = named.place.text() + ": the program has no function `" + named.entry + "` with a body; name the function in which the stage " + named.name + " begins";
        return false;
      }
      if (!named.list.empty() && !module.getGlobalVariable(named.list, true)) {
        error = named.place.text() + ": the program has no global `" + named.list + "`";
        return false;
      }
      Stage stage;
      stage.name = named.name;
      stage.kind = named.list.empty() ? (named.place.file == config.file ? "config" : "annotation") : "list";
      stage.function = entry;
      stage.place = place_of(*entry);
      lists.push_back(named.list.empty() ? nullptr : module.getGlobalVariable(named.list, true));
      graph.stages.push_back(stage);
    }
    lists.resize(graph.stages.size());
    return true;
  }

  void add_function_stage(const Function *function) {
    if (function->isDeclaration()) return;
    for (const Stage &stage : graph.stages)
      if (stage.function == function) return;
    Stage stage;
    stage.name = source_name(*function);
    stage.kind = "function";
    stage.function = function;
    stage.place = place_of(*function);
    graph.stages.push_back(stage);
  }

  static bool everywhere(const CallBase &) { return true; }

  void add_function_stages() {
    std::set<std::pair<std::string, const Function *>> found;
    // What is assigned by name; all that may be there only where nothing is.
    if (is_function_state()) {
      if (auto stores = calls.stores.find(graph.state); stores != calls.stores.end())
        for (const StoreInst *store : stores->second)
          for (const Origin &origin : origins(calls, store->getValueOperand(), store, everywhere, &graph.state).all)
            if (origin.function) found.insert({origin.function->getName().str(), origin.function});
      if (found.empty())
        for (const Target *target : calls.pointers.contents(graph.state))
          if (target->kind == Target::function) found.insert({target->value->getName().str(), cast<Function>(target->value)});
    }
    for (auto &[name, call] : config.queue_stage) {
      const Function *queue = function_named(name);
      for (const CallBase *caller : calls.callers(*queue))
        if (call.stage < int(caller->arg_size()))
          for (const Origin &origin : origins(calls, caller->getArgOperand(call.stage), caller, everywhere).all)
            if (origin.function) found.insert({origin.function->getName().str(), origin.function});
    }
    // In the order of the source, which is mostly the order of a request's life.
    std::vector<const Function *> sorted;
    for (auto &[name, function] : found) sorted.push_back(function);
    auto order = [](const Function *f) { Place p = place_of(*f); return std::make_tuple(p.file, p.line, f->getName().str()); };
    std::sort(sorted.begin(), sorted.end(), [&](const Function *a, const Function *b) { return order(a) < order(b); });
    for (const Function *function : sorted) add_function_stage(function);
    // Who calls through the field runs stages; a stage's own code does not go on there.
    if (is_function_state())
      for (Function &function : module)
        for (Instruction &instruction : instructions(function))
          if (auto *call = dyn_cast<CallBase>(&instruction)) {
            Cell cell;
            if (!isa<Function>(call->getCalledOperand()) && field_of(calls, call->getCalledOperand(), cell) && cell == graph.state) dispatch_calls.insert(call);
          }
    for (const Function *function : schedule_functions) graph.dispatchers.insert(function);
  }

  void add_value_stages() {
    const Function *only = nullptr;
    if (!config.dispatch.empty()) only = function_named(config.dispatch);
    std::vector<StateTest> tests = state_tests(calls, graph.state, only);
    add_stages_of_tests(tests, stored_values());
  }

  void add_schedule_argument_stages() {
    for (auto &[name, call] : config.schedule_stage) {
      const Function *schedule = function_named(name);
      if (call.stage < 0 || schedule->isDeclaration() || !schedule->getArg(call.stage)->getType()->isIntegerTy()) continue;
      if (has_state() && !is_functions) { graph.dispatchers.insert(schedule); continue; }
      add_stages_of_tests(argument_tests(*schedule, call.stage), stored_values());
    }
  }

  /// Constants that are assigned to the state or passed to the functions that queue.
  std::set<int64_t> stored_values() const {
    std::set<int64_t> values;
    auto take = [&](const Value *value, const Instruction *at) {
      for (const Origin &origin : origins(calls, value, at, everywhere).all)
        if (!origin.function) values.insert(origin.number);
    };
    if (auto stores = calls.stores.find(graph.state); has_state() && stores != calls.stores.end())
      for (const StoreInst *store : stores->second) take(store->getValueOperand(), store);
    for (auto &[name, call] : config.queue_stage)
      for (const CallBase *caller : calls.callers(*function_named(name)))
        if (call.stage < int(caller->arg_size())) take(caller->getArgOperand(call.stage), caller);
    return values;
  }

  void add_stages_of_tests(const std::vector<StateTest> &tests, std::set<int64_t> values) {
    for (const StateTest &test : tests)
      for (auto &[value, block] : test.when) values.insert(value);
    // A test within the code of another value: what it leads to otherwise is that code's, not every other value's.
    SetVector<const BasicBlock *> guarded;
    std::set<const BasicBlock *> ignored;
    for (const StateTest &test : tests)
      for (auto &[value, block] : test.when) add_region(tests, test, value, guarded, ignored);
    for (int64_t value : values) {
      Stage stage;
      stage.value = value;
      name(stage, value);
      if (any_of(graph.stages, [&](const Stage &s) { return s.name == stage.name; })) stage.name = graph.state_field + " " + std::to_string(value);
      for (const StateTest &test : tests) {
        if (test.is_dispatch) graph.dispatchers.insert(test.block->getParent());
        if (!test.when.count(value) && guarded.count(test.block)) continue;
        size_t before = stage.blocks.size();
        add_region(tests, test, value, stage.blocks, stage.starts);
        if (stage.blocks.size() > before && !stage.dispatcher && test.when.count(value)) {
          stage.dispatcher = test.block->getParent();
          stage.place = place_of(*test.when.at(value)->getFirstNonPHIOrDbg());
          if (!stage.place.line) stage.place = place_of(*test.block->getTerminator());
        }
      }
      if (stage.place.line == 0 && !tests.empty()) stage.place = place_of(*tests.front().block->getTerminator());
      graph.stages.push_back(stage);
    }
    lists.resize(graph.stages.size());
  }

  void name(Stage &stage, int64_t value) const {
    const auto &facts = program.facts;
    stage.kind = "number";
    stage.name = graph.state_field.empty() ? "stage " + std::to_string(value) : graph.state_field + " " + std::to_string(value);
    auto names = facts.values.find(graph.state.record + "." + graph.state_field);
    if (names != facts.values.end())
      if (auto found = names->second.find(value); found != names->second.end()) {
        stage.name = found->second.first;
        stage.kind = found->second.second ? "enum" : "macro";
        return;
      }
    for (auto *table : {&config.queue_stage, &config.schedule_stage})
      for (auto &[function, call] : *table) {
        auto passed = facts.passed.find(function + ":" + std::to_string(call.stage));
        if (passed == facts.passed.end()) continue;
        if (auto found = passed->second.find(value); found != passed->second.end()) {
          stage.name = found->second;
          stage.kind = "macro";
          return;
        }
      }
    // A setter's parameter: `set_state(c, READING)`.
    if (auto stores = calls.stores.find(graph.state); stores != calls.stores.end())
      for (const StoreInst *store : stores->second)
        if (const auto *argument = dyn_cast<Argument>(store->getValueOperand())) {
          auto passed = facts.passed.find(source_name(*argument->getParent()) + ":" + std::to_string(argument->getArgNo()));
          if (passed == facts.passed.end()) continue;
          if (auto found = passed->second.find(value); found != passed->second.end()) {
            stage.name = found->second;
            stage.kind = "macro";
            return;
          }
        }
  }

  bool is_border(const Function *function) const { return graph.dispatchers.count(function) || schedule_functions.count(function) || function == graph.scheduler; }

  /// Everything a stage can call, without the code that runs stages.
  void close(Stage &stage) {
    std::vector<const Function *> work;
    auto visit = [&](const Function *callee) {
      if (callee->isDeclaration() || is_border(callee)) return;
      if (stage.functions.insert(callee)) work.push_back(callee);
    };
    if (stage.function && !stage.functions.count(stage.function)) {
      stage.functions.insert(stage.function);
      work.push_back(stage.function);
    }
    auto scan = [&](const Instruction &instruction) {
      const auto *call = dyn_cast<CallBase>(&instruction);
      if (!call || dispatch_calls.count(call)) return;
      for (const Function *callee : calls.pointers.callees(*call)) visit(callee);
    };
    for (const BasicBlock *block : stage.blocks)
      for (const Instruction &instruction : *block) scan(instruction);
    while (!work.empty()) {
      const Function *function = work.back();
      work.pop_back();
      for (const Instruction &instruction : instructions(*function)) scan(instruction);
    }
  }

  /// What queues a request: instruction, value.
  template <typename Use> void each_queueing(const std::function<bool(const CallBase &)> &within, const std::function<bool(const Instruction &)> &counts, Use use) const {
    if (auto stores = calls.stores.find(graph.state); has_state() && stores != calls.stores.end())
      for (const StoreInst *store : stores->second)
        if (counts(*store))
          for (const Origin &origin : origins(calls, store->getValueOperand(), store, within, &graph.state).all) use(origin);
    for (auto &[name, call] : config.queue_stage)
      for (const CallBase *caller : calls.callers(*function_named(name)))
        if (counts(*caller) && call.stage >= 0 && call.stage < int(caller->arg_size()))
          for (const Origin &origin : origins(calls, caller->getArgOperand(call.stage), caller, within, &graph.state).all) use(origin);
    for (unsigned i = 0; i < lists.size(); i++)
      if (lists[i])
        for (const User *user : lists[i]->users())
          if (const auto *at = dyn_cast<Instruction>(user); at && counts(*at)) {
            const auto *store = dyn_cast<StoreInst>(at);
            bool is_put = (store && store->getPointerOperand() == lists[i] && !isa<ConstantPointerNull>(store->getValueOperand())) || isa<CallBase>(at);
            if (!is_put || graph.stages[i].contains(*at)) continue;
            Origin origin;
            origin.at = at, origin.number = i;
            use_list(origin, use);
          }
  }
  template <typename Use> void use_list(Origin origin, Use use) const { origin.function = graph.stages[origin.number].function; use(origin); }

  std::optional<unsigned> stage_of(const Origin &origin) const {
    for (unsigned i = 0; i < graph.stages.size(); i++) {
      const Stage &stage = graph.stages[i];
      if (origin.function ? stage.function == origin.function && stage.kind != "entry" : stage.value && *stage.value == origin.number) return i;
    }
    return std::nullopt;
  }

  void add_edges(unsigned from) {
    const Stage &stage = graph.stages[from];
    auto within = [&](const CallBase &call) { return stage.contains(call); };
    auto counts = [&](const Instruction &instruction) { return stage.contains(instruction); };
    each_queueing(within, counts, [&](const Origin &origin) {
      if (auto to = stage_of(origin)) graph.edges.push_back({from, *to, origin.at, {}});
    });
  }

  /// Code that queues requests and belongs to no stage: accept and timers. Its outermost function below the event loop is an
  /// entry stage.
  void add_entries() {
    SetVector<const Function *> tops;
    std::set<const Function *> seen;
    auto outside = [&](const Instruction &at) { return graph.stages_of(at).empty(); };
    std::vector<const Function *> work;
    auto any = [&](const CallBase &) { return true; };
    auto everything = [](const Instruction &) { return true; };
    std::map<const Function *, SetVector<const Instruction *>> in_dispatcher;
    each_queueing(any, everything, [&](const Origin &origin) {
      if (!stage_of(origin) || !outside(*origin.at)) return;
      const Function *function = origin.at->getFunction();
      work.push_back(function);
      if (is_border(function)) in_dispatcher[function].insert(origin.at);
    });
    while (!work.empty()) {
      const Function *function = work.back();
      work.pop_back();
      if (!seen.insert(function).second || is_border(function) || queue_functions.count(function)) continue;
      bool is_top = calls.pointers.called_later().count(const_cast<Function *>(function));
      bool has_callers = false;
      for (const CallBase *call : calls.callers(*function)) {
        const Function *caller = call->getFunction();
        if (!graph.stages_of(*call).empty()) continue;
        has_callers = true;
        if (is_border(caller) || caller->getName() == "main" || dispatch_calls.count(call)) is_top = true;
        else if (!is_top) work.push_back(caller);
      }
      if (!has_callers && graph.stages_of(function->getEntryBlock().front()).empty()) is_top = true;
      if (is_top && function->getName() != "main") tops.insert(function);
    }
    // The loop that runs the stages may accept by itself: its own code, without theirs, is then an entry.
    for (auto &[function, places] : in_dispatcher) {
      if (queue_functions.count(function)) continue;
      Stage stage;
      stage.name = source_name(*function);
      stage.kind = "entry";
      stage.dispatcher = function;
      stage.place = place_of(*places[0]);
      DominatorTree dominators(*const_cast<Function *>(function));
      LoopInfo loops(dominators);
      for (const Instruction *place : places) {
        const Loop *loop = loops.getLoopFor(place->getParent());
        while (loop && loop->getParentLoop()) loop = loop->getParentLoop();
        for (const BasicBlock &block : *function)
          if ((!loop || loop->contains(&block)) && graph.stages_of(block.front()).empty()) stage.blocks.insert(&block);
      }
      for (const BasicBlock *block : stage.blocks) stage.starts.insert(block);
      if (any_of(graph.stages, [&](const Stage &s) { return s.name == stage.name; })) stage.name += " (loop)";
      graph.stages.push_back(stage);
      close(graph.stages.back());
    }
    std::vector<const Function *> sorted(tops.begin(), tops.end());
    auto order = [](const Function *f) { Place p = place_of(*f); return std::make_tuple(p.file, p.line); };
    std::sort(sorted.begin(), sorted.end(), [&](const Function *a, const Function *b) { return order(a) < order(b); });
    for (const Function *function : sorted) {
      Stage stage;
      stage.name = source_name(*function);
      stage.kind = "entry";
      stage.function = function;
      stage.place = place_of(*function);
      bool is_named = any_of(graph.stages, [&](const Stage &s) { return s.name == stage.name; });
      if (is_named) continue;
      graph.stages.push_back(stage);
      close(graph.stages.back());
    }
    lists.resize(graph.stages.size());
  }

  bool add_told_edge(const NamedStage &named, const std::string &before) {
    std::optional<unsigned> from, to;
    for (unsigned i = 0; i < graph.stages.size(); i++) {
      if (graph.stages[i].name == before) from = i;
      if (graph.stages[i].name == named.name) to = i;
    }
    if (!from) {
      error = named.place.text() + ": after = \"" + before + "\": there is no stage of that name; memwalk --report lists them";
      return false;
    }
    graph.edges.push_back({*from, *to, nullptr, {}});
    return true;
  }

  const Program &program;
  const Config &config;
  const Calls &calls;
  Module &module;
  StageGraph &graph;
  std::string &error;
  bool is_functions = false;
  std::set<const Function *> schedule_functions, queue_functions;
  std::set<const CallBase *> dispatch_calls;
  std::vector<const GlobalVariable *> lists; ///< of the stage with the same number
};

} // namespace

bool find_stages(const Program &program, const Config &config, const Calls &calls, StageGraph &graph, std::string &error) {
  return Finder(program, config, calls, graph, error).run();
}

} // namespace stingy
