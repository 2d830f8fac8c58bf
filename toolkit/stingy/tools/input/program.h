// The whole program: each unit of compile_commands.json is parsed once for its facts and its code, and the code is
// linked.
#pragma once
#include "input/config.h"
#include "input/facts.h"
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace llvm {
class Function;
class Instruction;
class LLVMContext;
class Module;
} // namespace llvm

namespace stingy {

struct Unit {
    std::string directory, file;      ///< file is absolute
    std::vector<std::string> command; ///< as the build ran it
    std::string output;               ///< object file, absolute; empty if the command names none
};

struct Program {
    std::string build; ///< folder of compile_commands.json, absolute
    std::string root;  ///< folder that shown paths are relative to
    std::vector<Unit> units;
    Facts facts;
    std::unique_ptr<llvm::LLVMContext> context;
    std::unique_ptr<llvm::Module> module;
    std::vector<std::string> warnings;
    std::string left_out; ///< files of the build's other programs, in words; empty: there are none
    Program();
    ~Program();
};

/// Reads compile_commands.json. Returns false on failure; `error` then has the problem and the remedy.
bool read_units(const std::string &build, Program &program, std::string &error);
/// Returns the arguments with which Clang parses a unit: those that change its meaning, without those that only
/// change its code.
std::vector<std::string> parse_arguments(const Unit &unit);
/// Parses and links every unit, `jobs` at a time. `main_file` names the file with the server's main if the build
/// makes several programs; files that only the others need are left out. Calls `progress` with the number of files
/// done. Returns false on failure; `error` then has the compiler's messages, or asks to name the program.
bool load(Program &program, unsigned jobs, const std::string &main_file, const std::function<void(size_t)> &progress,
          std::string &error);

/// The place of a function's name or of an instruction in the source, with an absolute file name.
Place place_of(const llvm::Function &function);
Place place_of(const llvm::Instruction &instruction);
/// A function's name in the source; linking renames static functions.
std::string source_name(const llvm::Function &function);

} // namespace stingy
