// Finds the objects that belong to a request, and their number.
#include "memwalk/objects.h"
#include "pch.h"

using namespace llvm;

namespace stingy {
namespace {

bool is_in_loop(const Instruction &instruction) {
    // Finds out whether a block can reach itself.
    std::set<const BasicBlock *> seen;
    std::vector<const BasicBlock *> work(succ_begin(instruction.getParent()), succ_end(instruction.getParent()));
    while (!work.empty()) {
        const BasicBlock *block = work.back();
        work.pop_back();
        if (block == instruction.getParent())
            return true;
        if (!seen.insert(block).second)
            continue;
        work.insert(work.end(), succ_begin(block), succ_end(block));
    }
    return false;
}

class Ownership {
  public:
    Ownership(const Program &program, const Calls &calls, Objects &objects)
        : program(program), calls(calls), objects(objects) {}

    void run() {
        // Structures that belong to a request: its structures, their members, and the targets of their fields.
        std::set<std::string> owned = objects.request_records;
        bool is_changed = true;
        while (is_changed) {
            is_changed = false;
            for (auto &[name, record] : program.facts.records)
                if (owned.count(name))
                    for (const Field &field : record.fields)
                        if (!field.record.empty() && owned.insert(field.record).second)
                            is_changed = true;
            for (Object &object : objects.all) {
                if (object.scope == Object::request || object.is_temporary || lies_in_others_pool(object))
                    continue;
                bool is_held = object.is_request || lies_in_request_pool(object) || object.is_pool_of_request;
                for (const Cell &cell : object.holders)
                    is_held |= owned.count(cell.record) && cell.record != object.record;
                if (!is_held)
                    continue;
                object.scope = Object::request;
                is_changed = true;
                if (!object.record.empty())
                    owned.insert(object.record);
            }
        }
        for (Object &object : objects.all) {
            if (object.scope == Object::request)
                continue;
            bool has_global = false;
            for (const Site &s : object.alloc)
                has_global |= !calls.pointers.global_holders(*s.call).empty();
            for (const Site &s : object.realloc)
                has_global |= !calls.pointers.global_holders(*s.call).empty();
            if (object.holders.empty() && !has_global && !object.free.empty())
                object.scope = Object::temporary;
            if (objects.request_records.empty() && !has_global)
                object.scope = Object::request;
            if (object.is_temporary)
                object.scope = Object::temporary;
            if (lies_in_others_pool(object))
                object.scope = Object::shared;
        }
        for (Object &object : objects.all)
            object.per_request = number_of(object, 0);
    }

  private:
    bool lies_in_request_pool(const Object &object) const {
        return any_of(object.pools, [&](unsigned pool) { return objects.all[pool].is_pool_of_request; });
    }
    bool lies_in_others_pool(const Object &object) const { return object.is_pooled && !lies_in_request_pool(object); }

    std::optional<uint64_t> number_of(const Object &object, unsigned depth) const {
        if (object.is_request || object.is_pool_of_request)
            return 1;
        if (object.scope == Object::temporary) {
            for (const Site &s : object.alloc)
                if (is_in_loop(*s.call) && object.free.empty())
                    return std::nullopt;
            return 1;
        }
        if (object.scope != Object::request || depth > 6)
            return std::nullopt;
        uint64_t sum = 0;
        for (const Cell &cell : object.holders) {
            if (cell.record == object.record && !object.record.empty())
                return std::nullopt; // a list
            auto record = program.facts.records.find(cell.record);
            if (record == program.facts.records.end())
                return std::nullopt;
            const Field *field = record->second.find(field_name(program.facts, cell));
            if (!field || field->is_array)
                return std::nullopt;
            std::optional<uint64_t> around =
                objects.request_records.count(cell.record) ? std::optional<uint64_t>(1) : std::nullopt;
            for (const Object &other : objects.all)
                if (&other != &object && other.record == cell.record && other.scope == Object::request)
                    around = number_of(other, depth + 1);
            for (auto &[name, outer] : program.facts.records)
                if (!around && objects.request_records.count(name))
                    for (const Field &member : outer.fields)
                        if (member.record == cell.record && !member.is_array)
                            around = 1;
            if (!around)
                return std::nullopt;
            sum = std::max(sum, *around);
        }
        // Several fields may hold one block each, or all the same one, so the number of sites with different fields
        // is unknown.
        unsigned fields = 0;
        for (const Cell &cell : object.holders)
            fields += objects.request_records.count(cell.record);
        return sum ? std::optional<uint64_t>(sum * std::max(1u, object.record.empty() ? fields : 1u)) : std::nullopt;
    }

    const Program &program;
    const Calls &calls;
    Objects &objects;
};

} // namespace

void find_ownership(const Program &program, const Calls &calls, Objects &objects) {
    Ownership(program, calls, objects).run();
}

} // namespace stingy
