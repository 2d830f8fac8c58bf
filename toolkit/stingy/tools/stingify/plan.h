// The objects that are rewritten, and the others with the reason.
#pragma once
#include "input/program.h"
#include <map>
#include <set>
#include <string>
#include <vector>

namespace stingy {

/// A site of mem.json: a call to be rewritten for one or several objects.
struct Rewrite {
    std::string file; ///< absolute
    unsigned line = 0, column = 0;
    std::string callee, function;
    bool is_free = false;
    std::set<std::string> objects;
    std::set<std::string> named; ///< those of them that the call is for; others may reach it
};

struct Plan {
    std::map<std::string, std::string> refused; ///< object -> reason
    std::vector<std::string> objects;           ///< in the order of the file
    std::vector<Rewrite> rewrites;
    std::map<std::string, std::string>
        replacements;                        ///< function -> the one that takes an object and then its arguments
    bool uses(const Rewrite &rewrite) const; ///< some object of it is rewritten
    std::string id_of(const Rewrite &rewrite) const; ///< STINGY_OBJ_x, or STINGY_ANY
    void refuse(const Rewrite &rewrite, const std::string &reason);
    std::set<std::string> all_objects_at(const Rewrite &rewrite) const { return rewrite.objects; }
};

/// Reads mem.json. Returns false on failure; `error` then has the problem and the remedy. `only`: only these objects;
/// empty: all. Uses `plan.replacements`.
bool read_plan(const std::string &path, const Program &program, const std::set<std::string> &only, Plan &plan,
               std::string &error);

} // namespace stingy
