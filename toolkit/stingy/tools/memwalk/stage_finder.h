// Finds stages; stages.h has the result. stages.cpp: stages that the configuration names, and the order of work.
// stage_kinds.cpp: stages from values and from functions. stage_flow.cpp: the code of each stage, and the edges from
// it.
#pragma once
#include "memwalk/regions.h"
#include "memwalk/stages.h"
#include "memwalk/state_field.h"

namespace stingy {

class StageFinder {
  public:
    StageFinder(const Program &program, const Config &config, const Calls &calls, StageGraph &graph, std::string &error)
        : program(program), config(config), calls(calls), module(calls.module), graph(graph), error(error) {}
    bool run();

  private:
    /// Returns a function by its name in the source, including static ones.
    llvm::Function *function_named(const std::string &name) const;
    bool find_scheduler();
    bool find_outside();
    bool find_state();
    bool find_told_states();
    bool has_state() const { return !graph.states.empty(); }
    bool stages_are_functions_of_queue() const;
    bool add_configured();

    void add_function_stage(const llvm::Function *function);
    void add_function_stages();
    void add_value_stages();
    void add_schedule_argument_stages();
    /// Returns the constants that are assigned to the state or passed to the functions that queue.
    std::set<int64_t> stored_values() const;
    void add_stages_of_tests(const std::vector<StateTest> &found, std::set<int64_t> values);
    void name(Stage &stage, int64_t value) const;
    std::string numbered(int64_t value) const;

    bool is_border(const llvm::Function *function) const {
        return graph.dispatchers.count(function) || schedule_functions.count(function) || outside.count(function) ||
               function == graph.scheduler;
    }
    /// Returns the stage that begins in the function, if a field or a call in the source shows it. The code of
    /// another stage may continue in it.
    std::optional<unsigned> begun_by(const llvm::Function &function) const;
    void add_chosen(Stage &stage, const llvm::Function &function);
    void find_filling();
    bool is_made_of_bits(const llvm::Value *value, const StateCell &state) const;
    void report_unknown();
    /// Adds all functions that a stage can call, without code that runs stages and functions in which other stages
    /// begin.
    void close(Stage &stage);
    using Within = std::function<bool(const llvm::CallBase &)>;
    using Counts = std::function<bool(const llvm::Instruction &)>;
    /// Visits each call that queues a request, with its stage.
    void each_queueing(const Within &within, const Counts &counts,
                       const std::function<void(const Origin &)> &use) const;
    std::optional<unsigned> stage_of(const Origin &origin) const;
    void add_edges(unsigned from);
    void add_call_edges(unsigned from);
    /// Whether the stage uses requests after the call, so that they return to it.
    bool goes_on_after(const Stage &stage, const llvm::CallBase &call);
    bool is_busy(const Stage &stage, const llvm::Instruction &instruction);
    void add_entries();
    std::set<const llvm::Function *> outermost(const std::vector<const llvm::Function *> &from) const;
    bool add_told_edge(const NamedStage &named, const std::string &before);
    void join_edges();

    const Program &program;
    const Config &config;
    const Calls &calls;
    llvm::Module &module;
    StageGraph &graph;
    std::string &error;
    bool is_functions = false;
    std::vector<StateTest> tests;
    std::vector<std::pair<const llvm::CallBase *, int64_t>> filling; ///< calls that set the state, and to what
    std::vector<const llvm::CallBase *> filling_unknown;
    std::set<const llvm::Function *> schedule_functions, queue_functions, outside;
    std::map<const llvm::CallBase *, const Cell *> dispatch_calls; ///< calls through a state field
    std::vector<const llvm::GlobalVariable *> lists;               ///< of the stage with the same number
    std::map<const llvm::Function *, unsigned> begins;             ///< stages of kind function
    std::map<const llvm::Function *, bool> busy;                   ///< of the stage at hand
};

} // namespace stingy
