#include "stingify/plan.h"
#include "input/paths.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

bool Plan::uses(const Rewrite &rewrite) const {
    return any_of(rewrite.objects, [&](const std::string &object) { return !refused.count(object); });
}

std::string Plan::id_of(const Rewrite &rewrite) const {
    // stingy_free accepts any block, so a site that frees several objects cannot name one.
    return rewrite.named.size() == 1 && !refused.count(*rewrite.named.begin()) ? "STINGY_OBJ_" + *rewrite.named.begin()
                                                                               : "STINGY_ANY";
}

void Plan::refuse(const Rewrite &rewrite, const std::string &reason) {
    for (const std::string &object : rewrite.objects)
        if (!refused.count(object))
            refused[object] = rewrite.file + ":" + std::to_string(rewrite.line) + ": " + reason;
}

namespace {

/// Whether a function returns a block through an argument. Such blocks belong to malloc; stingy_free and
/// stingy_realloc accept them, so the calls are not changed.
bool gives_through_argument(const std::string &name) {
    static const Config known = [] {
        Config config;
        config.add_known();
        return config;
    }();
    auto found = known.malloc_like.find(name);
    return found != known.malloc_like.end() && found->second.through >= 0;
}

struct Reading {
    const Program &program;
    const std::set<std::string> &only;
    Plan &plan;
    std::map<std::tuple<std::string, unsigned, unsigned, std::string>, size_t> known;
    bool is_allocated = false;

    bool sites(const json::Object &object, const std::string &id, const char *key, bool is_free, bool is_named = true) {
        const json::Array *list = object.getArray(key);
        if (!list)
            return !is_named;
        for (const json::Value &value : *list) {
            const json::Object *site = value.getAsObject();
            if (!site || !site->getString("file") || !site->getInteger("line") || !site->getInteger("column") ||
                !site->getString("allocator"))
                return false;
            Rewrite rewrite;
            rewrite.file = absolute_path(program.root, site->getString("file")->str());
            rewrite.line = *site->getInteger("line"), rewrite.column = *site->getInteger("column");
            rewrite.callee = site->getString("allocator")->str();
            rewrite.function = site->getString("function").value_or("").str();
            rewrite.is_free = is_free;
            if (!is_free && gives_through_argument(rewrite.callee))
                continue;
            is_allocated |= !is_free && is_named;
            auto [found, is_new] = known.emplace(
                std::make_tuple(rewrite.file, rewrite.line, rewrite.column, rewrite.callee), plan.rewrites.size());
            if (is_new)
                plan.rewrites.push_back(rewrite);
            plan.rewrites[found->second].objects.insert(id);
            if (is_named)
                plan.rewrites[found->second].named.insert(id);
        }
        return true;
    }

    bool object(const json::Object &o, bool is_candidate) {
        auto id = o.getString("id");
        if (!id || id->empty() || !all_of(*id, [](char c) { return isAlnum(c) || c == '_'; }))
            return false;
        std::string name = id->str();
        plan.objects.push_back(name);
        if (!is_candidate)
            plan.refused[name] = "not a request's: only globals or other structures hold it";
        else if (!only.empty() && !only.count(name))
            plan.refused[name] = "not requested";
        if (const json::Array *hindrances = o.getArray("not_rewritable"))
            for (const json::Value &value : *hindrances) {
                const json::Object *one = value.getAsObject();
                if (!one || !one->getString("file") || !one->getInteger("line") || !one->getString("why"))
                    return false;
                plan.refused.emplace(name, one->getString("file")->str() + ":" +
                                               std::to_string(*one->getInteger("line")) + ": " +
                                               one->getString("why")->str());
            }
        if (const json::Array *pools = o.getArray("pools"); pools && !pools->empty())
            plan.refused.emplace(name, "it lies in a pool (" + (*pools)[0].getAsString().value_or("").str() +
                                           "), which frees all its objects at once");
        is_allocated = false;
        if (!sites(o, name, "alloc", false) || !sites(o, name, "realloc", false) || !sites(o, name, "free", true) ||
            !sites(o, name, "maybe_freed", true, false) || !sites(o, name, "maybe_resized", false, false))
            return false;
        if (!is_allocated)
            plan.refused.emplace(
                name, "functions that return blocks through an argument (asprintf, getline) get them from malloc");
        const json::Array *frees = o.getArray("free");
        if (frees->empty() && !plan.refused.count(name))
            plan.refused[name] = "no stage frees it, as far as seen; the function that does would not recognise its "
                                 "block. Name it with [[free]]";
        return true;
    }
};

} // namespace

bool read_plan(const std::string &path, const Program &program, const std::set<std::string> &only, Plan &plan,
               std::string &error) {
    auto buffer = MemoryBuffer::getFile(path, true);
    if (!buffer) {
        error = path + ": " + buffer.getError().message() + ". memwalk -p BUILD -o " + path + " writes it";
        return false;
    }
    auto data = json::parse((*buffer)->getBuffer());
    if (!data) {
        error = path + ": " + toString(data.takeError());
        return false;
    }
    const json::Object *root = data->getAsObject();
    if (!root || root->getInteger("memwalk") != std::optional<int64_t>(1)) {
        error = path + ": this is not what memwalk writes (\"memwalk\": 1 is missing)";
        return false;
    }
    Reading reading{program, only, plan, {}};
    bool is_good = true;
    for (const char *key : {"objects", "shared_objects"}) {
        const json::Array *list = root->getArray(key);
        if (!list) {
            is_good = false;
            continue;
        }
        for (const json::Value &value : *list)
            is_good &= value.getAsObject() && reading.object(*value.getAsObject(), key == StringRef("objects"));
    }
    // A call that may get any block must accept any.
    for (const std::string &object : plan.objects)
        is_good &= reading.sites(*root, object, "unknown_freed", true, false) &&
                   reading.sites(*root, object, "unknown_resized", false, false);
    if (!is_good) {
        error = path + ": an object does not match schema/memwalk.schema.json. Run memwalk again";
        return false;
    }
    for (const std::string &wanted : only)
        if (!is_contained(plan.objects, wanted)) {
            error = "--objects: " + path + " has no object `" + wanted + "`";
            return false;
        }
    for (const char *key : {"unsound", "doubts"}) {
        const json::Array *notes = root->getArray(key);
        if (!notes)
            continue;
        for (const json::Value &value : *notes) {
            const json::Object *note = value.getAsObject();
            if (!note)
                continue;
            std::string what = note->getString("what").value_or("").str();
            if (const json::Object *at = note->getObject("at");
                at && note->getString("kind") == StringRef("free_by_pointer"))
                for (const std::string &object : plan.objects)
                    plan.refused.emplace(object, at->getString("file").value_or("").str() + ":" +
                                                     std::to_string(at->getInteger("line").value_or(0)) + ": " + what);
            if (const json::Array *told = note->getArray("objects"))
                for (const json::Value &object : *told)
                    if (auto id = object.getAsString())
                        plan.refused.emplace(id->str(), what);
        }
    }
    for (Rewrite &rewrite : plan.rewrites)
        if (StringRef(shown_path(program.root, rewrite.file)).starts_with("/"))
            plan.refuse(rewrite, "lies outside of " + program.root);
    return true;
}

} // namespace stingy
