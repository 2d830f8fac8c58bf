#include "stingify/rewrite.h"
#include "input/paths.h"
#include "pch.h"
#include "stingify/find.h"

namespace stingy {
namespace {

/// The function that replaces another one, with the object as its first or last argument.
struct Replacement {
    std::string name;
    bool is_last = false;
};

Replacement replacement(const Plan &plan, const std::string &callee) {
    if (auto told = plan.replacements.find(callee); told != plan.replacements.end())
        return {told->second};
    if (callee == "malloc")
        return {"stingy_alloc_var"};
    if (is_library_allocator(callee) || callee == "free")
        return {"stingy_" + callee};
    return {callee + "_stingy",
            true}; // the object comes last in a copy, so that attributes that number its parameters remain true
}

/// The text of a macro's use with another function called in it.
Edit written_out(const Expansion &e, const Replacement &with, const std::string &id, bool has_arguments) {
    std::string first = with.is_last ? "" : id + (has_arguments ? ", " : ""), last = with.is_last ? ", " + id : "";
    return {e.end - e.from, e.before + with.name + e.open + first + e.arguments + last + e.close};
}

class Writer {
  public:
    Writer(const Program &program, const std::string &header, Plan &plan, Edits &edits, std::string &error)
        : program(program), header(header), plan(plan), edits(edits), error(error) {}

    bool run() {
        std::set<std::string> wanted_files;
        bool has_own = false;
        for (const Rewrite &rewrite : plan.rewrites)
            if (plan.uses(rewrite)) {
                wanted[{rewrite.file, rewrite.line, rewrite.column, rewrite.callee}] = &rewrite,
                                                                    wanted_files.insert(rewrite.file);
                has_own |= is_own(rewrite);
            }
        if (wanted.empty())
            return true;
        bool has_header = llvm::any_of(wanted_files, [&](const std::string &file) {
            return llvm::none_of(program.units, [&](const Unit &unit) { return unit.file == file; });
        });
        for (const Unit &unit : program.units)
            if ((has_own || has_header || wanted_files.count(unit.file)) &&
                !find_calls(unit, wanted, found, has_own ? &functions : nullptr, error))
                return false;
        refuse();
        for (auto &[key, rewrite] : wanted)
            if (plan.uses(*rewrite) && !write_call(*rewrite, found.at(key)))
                return false;
        for (auto &[key, rewrite] : wanted)
            if (plan.uses(*rewrite) && is_own(*rewrite) &&
                !(rewrite->is_free ? change(found.at(key).function) : copy(found.at(key).function)))
                return false;
        std::set<std::string> in_place = unused();
        for (const std::string &key : copied)
            if (!write_copy(functions.at(key), in_place.count(key)))
                return false;
        for (const std::string &file : callers)
            edits.include(file, contents.at(file), header);
        return true;
    }

  private:
    bool is_own(const Rewrite &rewrite) const {
        return !is_library_allocator(rewrite.callee) && rewrite.callee != "free" &&
               !plan.replacements.count(rewrite.callee);
    }

    void refuse() {
        for (auto &[key, rewrite] : wanted) {
            auto here = found.find(key);
            if (here == found.end())
                plan.refuse(*rewrite, "there is no call of " + rewrite->callee + " in column " +
                                          std::to_string(rewrite->column) +
                                          "; has the source changed? Run memwalk again");
            else if (!here->second.problem.empty() && !(rewrite->is_free && is_own(*rewrite)))
                plan.refuse(*rewrite, here->second.problem);
            else if (is_own(*rewrite)) {
                const std::string &function = here->second.function;
                std::string why =
                    rewrite->is_free ? why_not_changed(functions, function) : why_not_copied(functions, function);
                std::set<std::string> seen;
                if (why.empty() && is_elsewhere(function, seen))
                    why = "a part of it lies outside of " + program.root;
                if (!why.empty())
                    plan.refuse(*rewrite, rewrite->callee +
                                              " is not the C library's, and none that does the same with "
                                              "an object can be made of it: " +
                                              shown(why) + ". --replace names one");
            } else if (is_outside(here->second.file))
                plan.refuse(*rewrite, "the macro around the call lies outside of " + program.root);
        }
    }

    bool is_outside(const std::string &file) const { return shown_path(program.root, file)[0] == '/'; }

    /// Whether text outside the program would have to change for one of its functions.
    bool is_elsewhere(const std::string &key, std::set<std::string> &seen) const {
        auto own = functions.find(key);
        if (own == functions.end() || !seen.insert(key).second)
            return false;
        auto is_there = [&](const std::string &other) { return is_elsewhere(other, seen); };
        return llvm::any_of(own->second.declarations, [&](const Declared &where) { return is_outside(where.file); }) ||
               llvm::any_of(own->second.allocations, [&](const BodyCall &call) { return is_there(call.key); }) ||
               llvm::any_of(own->second.frees_by, is_there);
    }

    std::string shown(const std::string &why) const {
        return llvm::StringRef(why).starts_with(program.root + "/") ? why.substr(program.root.size() + 1) : why;
    }

    bool write_call(const Rewrite &rewrite, const Found &f) {
        if (rewrite.is_free && is_own(rewrite))
            return true; // its calls of free change
        // Refusing an object may remove the last user of a site, but never adds one.
        Replacement with = replacement(plan, rewrite.callee);
        std::string id = f.is_in_macro_body ? "STINGY_ANY" : plan.id_of(rewrite);
        changed.insert({f.file, f.name});
        callers.insert(f.file);
        if (f.is_whole_macro)
            return add(f.file, f.expansion.from, written_out(f.expansion, with, id, f.has_arguments));
        return add(f.file, f.name, {f.name_length, with.name}) &&
               (with.is_last ? add(f.file, f.close, {0, ", " + id})
                             : add(f.file, f.open, {0, id + (f.has_arguments ? ", " : "")}));
    }

    /// Marks a function that frees its argument: its calls of free must accept any block.
    bool change(const std::string &key) {
        auto own = functions.find(key);
        if (own == functions.end() || !own->second.is_defined || !done.insert(key).second)
            return true;
        const std::string &file = definition(own->second).file;
        auto take_any = [&](const BodyCall &call) {
            if (!changed.insert({file, call.name}).second)
                return true;
            callers.insert(file);
            for (auto &[offset, edit] : in_body(call, "STINGY_ANY"))
                if (!add(file, offset, edit))
                    return false;
            return true;
        };
        for (const BodyCall &call : own->second.frees)
            if (!take_any(call))
                return false;
        for (const BodyCall &call : own->second.allocations)
            if (call.callee == "realloc" && !take_any(call))
                return false;
        for (const std::string &other : own->second.frees_by)
            if (!change(other))
                return false;
        return true;
    }

    static const Declared &definition(const OwnFunction &own) {
        return *llvm::find_if(own.declarations, [](const Declared &d) { return d.is_definition; });
    }

    /// Marks a function that must take an object, and those that it uses to allocate.
    bool copy(const std::string &key) {
        if (!copied.insert(key).second)
            return true;
        for (const BodyCall &call : functions.at(key).allocations)
            if (!call.key.empty() && !copy(call.key))
                return false;
        return true;
    }

    /// Returns the change of a call in a function's body.
    std::map<unsigned, Edit> in_body(const BodyCall &call, const std::string &id) const {
        Replacement with = replacement(plan, call.callee);
        if (call.is_whole_macro)
            return {{call.name, written_out(call.expansion, with, id, call.has_arguments)}};
        if (with.is_last)
            return {{call.name, {call.name_length, with.name}}, {call.close, {0, ", " + id}}};
        return {{call.name, {call.name_length, with.name}}, {call.open, {0, id + (call.has_arguments ? ", " : "")}}};
    }

    /// Returns the changes that make a function take an object, as offsets in its file.
    std::map<unsigned, Edit> differences(const OwnFunction &own, const Declared &where) const {
        std::map<unsigned, Edit> out;
        out[where.name] = {unsigned(own.name.size()), own.name + "_stingy"};
        out[where.close] = {0, ", unsigned stingy_object"};
        if (!where.is_definition)
            return out;
        for (const BodyCall &call : own.allocations)
            out.merge(in_body(call, "stingy_object"));
        for (const BodyCall &call : own.frees)
            out.merge(in_body(call, "STINGY_ANY"));
        return out;
    }

    /// Returns the copied functions that are no longer called by their old names. They are changed in place, because
    /// an unused static function causes a warning.
    std::set<std::string> unused() const {
        std::set<std::string> out;
        for (const std::string &key : copied)
            if (functions.at(key).is_internal)
                out.insert(key);
        auto is_within = [&](const std::string &key, const std::pair<std::string, unsigned> &use) {
            const Declared &body = definition(functions.at(key));
            return body.file == use.first && use.second > body.begin && use.second < body.end;
        };
        auto is_kept = [&](const std::string &key) {
            return llvm::any_of(functions.at(key).uses, [&](const auto &use) {
                return !changed.count(use) && !is_within(key, use) &&
                       llvm::none_of(out, [&](const std::string &other) { return is_within(other, use); });
            });
        };
        for (bool is_changed = true; is_changed;) {
            is_changed = false;
            for (auto it = out.begin(); it != out.end();)
                if (is_kept(*it))
                    it = out.erase(it), is_changed = true;
                else
                    ++it;
        }
        return out;
    }

    bool write_copy(const OwnFunction &own, bool is_changed_in_place) {
        callers.insert(definition(own).file);
        for (const Declared &where : own.declarations) {
            const std::string *text = read(where.file);
            if (!text)
                return false;
            if (is_changed_in_place) {
                for (auto &[offset, edit] : differences(own, where))
                    if (!add(where.file, offset, edit))
                        return false;
                continue;
            }
            std::string fresh;
            unsigned at = where.begin;
            for (auto &[offset, edit] : differences(own, where)) {
                fresh += text->substr(at, offset - at) + edit.text;
                at = offset + edit.length;
            }
            fresh += text->substr(at, where.end - at) + "\n";
            if (where.is_definition)
                fresh = "\n/* As " + own.name + ", for an object of the Stingy allocator. */\n" + fresh;
            edits.insert_line(where.file, *text, where.end, fresh);
        }
        return true;
    }

    const std::string *read(const std::string &file) {
        auto known = contents.find(file);
        if (known != contents.end())
            return &known->second;
        auto buffer = llvm::MemoryBuffer::getFile(file, false, false);
        if (!buffer) {
            error = file + ": " + buffer.getError().message();
            return nullptr;
        }
        return &(contents[file] = (*buffer)->getBuffer().str());
    }

    bool add(const std::string &file, unsigned offset, const Edit &edit) {
        if (!read(file))
            return false;
        if (edits.add(file, offset, edit))
            return true;
        error = file + ": two changes overlap at byte " + std::to_string(offset) +
                "; name objects with --objects to rewrite one at a time";
        return false;
    }

    const Program &program;
    const std::string &header;
    Plan &plan;
    Edits &edits;
    std::string &error;
    std::map<Key, const Rewrite *> wanted;
    std::map<Key, Found> found;
    OwnFunctions functions;
    std::map<std::string, std::string> contents;
    std::set<std::string> callers, copied, done;        ///< callers: files that call the allocator
    std::set<std::pair<std::string, unsigned>> changed; ///< calls, by file and offset
};

} // namespace

bool find_edits(const Program &program, const std::string &header, Plan &plan, Edits &edits, std::string &error) {
    return Writer(program, header, plan, edits, error).run();
}

} // namespace stingy
