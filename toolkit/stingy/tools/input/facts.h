// Facts that only the syntax tree has: names of states, annotations, layouts, and how allocations are written.
#pragma once
#include "input/config.h"
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace clang {
class ASTConsumer;
class CompilerInstance;
} // namespace clang

namespace stingy {

/// A function's type as far as it distinguishes calls through pointers: result, then parameters. Integers have their
/// width and pointers their target, without qualifiers; `*` points to void. `...` at the end permits more parameters.
/// Empty stands for any type.
using Signature = std::vector<std::string>;
/// Whether a call with type `called` can reach a function of type `callee`.
bool fits(const Signature &called, const Signature &callee);

struct Field {
    std::string name, type;
    std::string record; ///< structure that the field is (not one that it points to); empty for others
    uint64_t offset = 0, bytes = 0, align = 1; ///< bytes; a bit field: of the storage that it begins in
    bool is_bits = false, is_cold = false, is_state = false, is_function = false, is_enum = false;
    bool is_array = false, is_pointer = false;
    Signature signature; ///< of a pointer to a function
};

struct Record {
    std::string name;
    Place place;
    uint64_t bytes = 0, align = 1;
    bool is_request = false, is_union = false;
    std::vector<Field> fields; ///< those of unnamed members too, as a.b
    const Field *find(const std::string &field) const;
};

/// An access of a function to a field. In a macro, `line` is the place of the macro's use.
struct Access {
    std::string file, function, record, field;
    unsigned line;
    bool is_write; ///< written, or its address taken
    bool is_read;
    bool operator<(const Access &o) const {
        return std::tie(file, line, function, record, field, is_write, is_read) <
               std::tie(o.file, o.line, o.function, o.record, o.field, o.is_write, o.is_read);
    }
};

/// A call, as written, whose result or argument may be a per-request object.
struct WrittenCall {
    std::string callee, function;
    std::string type;   ///< what the result is used as, or what the pointer argument points to; empty: void or unknown
    std::string record; ///< its structure's name, if it is one
    std::string left;   ///< what it is assigned to
    /// For the first argument that points to a pointer: its target's type and structure, and the
    /// expression for the pointer.
    std::string stored_type, stored_record, stored_left;
    std::vector<std::string> arguments;
    unsigned column = 0;
    bool is_macro = false;
    uint64_t align = 1;
};

struct Note {
    std::string text; ///< of the annotation, without `stingy:`
    Place place;
};

/// Facts of one unit, or the sum of all units.
struct Facts {
    std::map<std::string, Record> records;
    std::map<std::string, std::string> aliases; ///< typedef name -> structure
    std::set<Access> accesses;
    std::map<std::string, std::map<int64_t, std::pair<std::string, bool>>>
        values;                                                   ///< record.field -> value -> name, is enumerator
    std::map<std::string, std::map<int64_t, std::string>> passed; ///< function:argument -> value -> name as written
    std::multimap<std::pair<std::string, unsigned>, WrittenCall> calls; ///< file and line
    std::map<std::string, std::vector<Note>> function_notes;
    std::map<std::string, std::set<std::string>> void_parameters; ///< function -> numbers of parameters of type void *
    std::map<std::string, std::set<Signature>>
        signatures; ///< function -> its type, of each definition of that name, and those it is cast to
    std::map<Signature, std::set<Signature>> casts; ///< of pointers to functions, other than a function's name
    std::map<std::tuple<std::string, unsigned, unsigned>, std::set<Signature>>
        pointer_calls; ///< file, line, column -> type called there
    void add(Facts &&other);
    /// Whether a call of this type can reach the function: through the function's own type, or through a type to
    /// which it is cast.
    bool can_be_called_as(const std::string &function, const Signature &type) const;
    std::string record_named(const std::string &name) const; ///< resolves typedefs; empty if unknown
};

/// A consumer that fills `facts` of the unit being compiled. `directory` resolves relative names.
std::unique_ptr<clang::ASTConsumer> make_fact_consumer(clang::CompilerInstance &compiler, const std::string &directory,
                                                       Facts &facts);

} // namespace stingy
