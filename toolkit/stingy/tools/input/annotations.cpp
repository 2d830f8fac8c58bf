#include "input/annotations.h"
#include "pch.h"

namespace stingy {
namespace {

/// Splits `text` into words: those with `=` become keys, the first one and bare ones become flags.
std::map<std::string, std::string> words_of(const std::string &text) {
    std::map<std::string, std::string> words;
    llvm::SmallVector<llvm::StringRef, 4> parts;
    llvm::StringRef(text).split(parts, ' ', -1, false);
    for (llvm::StringRef part : parts) {
        auto [key, value] = part.split('=');
        words[key.str()] = value.str();
    }
    return words;
}

} // namespace

bool apply_annotations(const Facts &facts, Config &config, std::string &error) {
    for (auto &[function, notes] : facts.function_notes)
        for (const Note &note : notes) {
            auto words = words_of(note.text);
            auto fail = [&](const std::string &what) {
                if (error.empty())
                    error = note.place.text() + ": " + function + ": " + what;
            };
            auto argument = [&](const char *key) {
                auto found = words.find(key);
                if (found == words.end())
                    return -1;
                unsigned number = 0;
                if (!llvm::StringRef(found->second).getAsInteger(10, number) && number < 64)
                    return int(number);
                fail("the annotation's argument `" + found->second +
                     "` is not a number from 0; arguments count from 0");
                return -1;
            };
            auto contradicts = [&](const Place &told) {
                fail("the annotation contradicts " + told.text() + "; keep one of the two");
            };
            if (words.count("queue_stage") || words.count("schedule_stage")) {
                auto &table = words.count("queue_stage") ? config.queue_stage : config.schedule_stage;
                StageCall call{argument("request"), argument("stage"), note.place};
                auto [old, is_new] = table.emplace(function, call);
                if (!is_new && (old->second.stage != call.stage || old->second.request != call.request))
                    contradicts(old->second.place);
            } else if (words.count("scheduler")) {
                if (!config.scheduler.empty() && config.scheduler != function)
                    contradicts(config.scheduler_place);
                config.scheduler = function, config.scheduler_place = note.place;
            } else if (words.count("stage")) {
                bool is_told = false;
                for (const NamedStage &stage : config.stages)
                    is_told |= stage.name == words["name"];
                if (!is_told)
                    config.stages.push_back({words["name"], function, "", {}, note.place});
            } else if (words.count("malloc")) {
                Allocator a;
                a.size = argument("size"), a.count = argument("count"), a.pointer = argument("pointer"),
                a.type = words.count("object") ? "*" : "", a.place = note.place;
                auto [old, is_new] = config.malloc_like.emplace(function, a);
                if (!is_new &&
                    (old->second.size != a.size || old->second.count != a.count || old->second.pointer != a.pointer))
                    contradicts(old->second.place);
                if (config.free_like.count(function))
                    contradicts(config.free_like[function].place);
            } else if (words.count("free")) {
                Allocator a;
                a.pointer = argument("pointer"), a.place = note.place;
                auto [old, is_new] = config.free_like.emplace(function, a);
                if (!is_new && old->second.pointer != a.pointer)
                    contradicts(old->second.place);
                if (config.malloc_like.count(function))
                    contradicts(config.malloc_like[function].place);
            } else if (words.count("callback")) {
                config.callbacks.emplace(function,
                                         Callback{argument("function"), words.count("later") != 0, note.place});
            } else
                fail("the annotation `stingy:" + note.text + "` is not one of stingy/annotate.h");
        }
    return error.empty();
}

} // namespace stingy
