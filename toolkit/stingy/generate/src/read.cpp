// Reads memwalk's JSON. It is untrusted input although a tool writes it: names end up in C code and numbers in sizes,
// so both are checked.
#include "stingygen.h"

#include <algorithm>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>

using nlohmann::json;

namespace {

constexpr uint64_t LARGEST = 1 << 30;
constexpr size_t MOST = 1024;

json parse_file(const std::string &path) {
    std::ifstream file(path);
    if (!file)
        throw Refusal(path + ": cannot be read; give the file that memwalk wrote with -o");
    try {
        return json::parse(file);
    } catch (const json::parse_error &error) {
        throw Refusal(path + ": not JSON at byte " + std::to_string(error.byte) + "; write it anew with memwalk -o");
    } catch (const json::exception &error) {
        throw Refusal(path + ": contains an impossible number: " + error.what());
    }
}

bool is_identifier(const std::string &text) {
    return !text.empty() && text.size() < 200 && !isdigit((unsigned char)text[0]) &&
           std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 128 && (isalnum(c) || c == '_'); });
}

uint64_t size_field(const json &object, const char *name, const std::string &where) {
    const json &value = object.at(name);
    if (value.is_null())
        return 0;
    if (!value.is_number_unsigned() || value.get<uint64_t>() > LARGEST)
        throw Refusal(where + ": " + name + " is not a size up to 1 GiB");
    return value.get<uint64_t>();
}

Stage read_stage(const json &value) {
    Stage stage;
    stage.name = value.at("name").get<std::string>();
    stage.is_entry = value.at("is_entry").get<bool>();
    stage.allocates = value.at("allocates").get<std::vector<std::string>>();
    const json &stack = value.at("stack");
    stage.stack_bytes = size_field(stack, "bytes", "stage " + stage.name);
    stage.is_stack_bound = stack.at("is_bound").get<bool>() && stage.stack_bytes > 0;
    if (stage.name.empty() || stage.name.size() > 200)
        throw Refusal("a stage has no name, or one of more than 200 characters");
    return stage;
}

Object read_object(const json &value, std::vector<std::string> &warnings) {
    Object object;
    object.id = value.at("id").get<std::string>();
    if (!is_identifier(object.id))
        throw Refusal("object id \"" + object.id + "\" is not a C identifier");
    object.type = value.at("type").get<std::string>();
    object.is_request = value.at("is_request").get<bool>();
    object.is_doubtful = value.contains("doubt");
    object.align = (uint32_t)std::max<uint64_t>(1, size_field(value, "align", object.id));
    if (object.align > 64 || (object.align & (object.align - 1)))
        throw Refusal(
            object.id +
            ": align is not a power of two up to 64, and larger ones are not laid out; leave this object to malloc");
    object.per_request = (uint32_t)size_field(value, "per_request", object.id);
    if (object.per_request == 0) {
        object.per_request = 1;
        warnings.push_back(object.id +
                           ": the number per request is not known; 1 is reserved, and others spill (--object " +
                           object.id + "=BYTESxCOUNT)");
    }
    object.bytes = size_field(value.at("size"), "bytes", object.id);
    object.is_bounded = value.at("size").value("class", "") == "bounded";
    object.bytes_from = value.at("size").value("bytes_from", "analysis");
    if (object.bytes_from != "analysis" && object.bytes_from != "configuration" && object.bytes_from != "profile")
        throw Refusal(object.id + ": bytes_from is not analysis, configuration or profile");
    for (const json &stage : value.at("live"))
        object.live.insert(stage.get<std::string>());
    return object;
}

// Sorts stages by their distance from an entry, so that a scheduler can use the numbers as the order of execution.
void order_stages(Program &program, const json &edges) {
    std::map<std::string, unsigned> distance;
    std::map<std::string, std::vector<std::string>> next;
    std::deque<std::string> queue;
    for (const json &edge : edges)
        next[edge.at("from").get<std::string>()].push_back(edge.at("to").get<std::string>());
    for (const Stage &stage : program.stages)
        if (stage.is_entry) {
            distance[stage.name] = 0;
            queue.push_back(stage.name);
        }
    while (!queue.empty()) {
        std::string at = queue.front();
        queue.pop_front();
        for (const std::string &to : next[at])
            if (!distance.count(to)) {
                distance[to] = distance[at] + 1;
                queue.push_back(to);
            }
    }
    auto rank = [&](const Stage &stage) { return distance.count(stage.name) ? distance[stage.name] : UINT32_MAX; };
    std::stable_sort(program.stages.begin(), program.stages.end(), [&](const Stage &a, const Stage &b) {
        return std::make_pair(rank(a), a.name) < std::make_pair(rank(b), b.name);
    });
}

void check_names(const Program &program) {
    std::set<std::string> stages, words, objects;
    for (const Stage &stage : program.stages)
        if (!stages.insert(stage.name).second || !words.insert(stage_word(stage)).second)
            throw Refusal("two stages have the name " + stage.name + ", or names that differ only in punctuation");
    for (const Object &object : program.objects) {
        if (!objects.insert(object.id).second)
            throw Refusal("two objects have the id " + object.id);
        for (const std::string &stage : object.live)
            if (!stages.count(stage))
                throw Refusal(object.id + " lives at " + stage + ", which is not a stage");
    }
    for (const Stage &stage : program.stages)
        for (const std::string &id : stage.allocates)
            if (!objects.count(id))
                throw Refusal("stage " + stage.name + " allocates " + id + ", which is not an object");
}

void take_profile(Program &program, const Options &options) {
    json profile = parse_file(options.profile);
    try {
        if (!profile.is_object() || profile.value("stingy_profile", 0) != 1)
            throw Refusal(options.profile + ": not a profile of sizes; run the server with STINGY_PROFILE=FILE");
        for (const json &entry : profile.at("objects"))
            for (Object &object : program.objects) {
                if (entry.at("id") != object.id || entry.at("count").get<uint64_t>() == 0)
                    continue;
                // A request that exceeds its slot cannot use another one, so its slot is never smaller than the
                // request.
                if (object.is_request && object.bytes > 0)
                    continue;
                object.bytes = size_field(entry, object.is_request ? "max_bytes" : "p95_bytes", options.profile);
                object.bytes_from = "profile";
            }
    } catch (const json::exception &error) {
        throw Refusal(options.profile + ": not a profile as STINGY_PROFILE=FILE writes it: " + error.what());
    }
}

void take_options(Program &program, const Options &options) {
    auto find = [&](const std::string &id) -> Object & {
        for (Object &object : program.objects)
            if (object.id == id)
                return object;
        throw Refusal("there is no object " + id + " in " + options.input);
    };
    for (const auto &[id, size] : options.sizes) {
        Object &object = find(id);
        if (size.bytes) {
            object.bytes = size.bytes;
            object.bytes_from = "option";
        }
        if (size.per_request)
            object.per_request = size.per_request;
    }
    for (const auto &entry : options.slots)
        find(entry.first);
    for (const std::string &id : options.without) {
        find(id);
        program.objects.erase(
            std::remove_if(program.objects.begin(), program.objects.end(), [&](const Object &o) { return o.id == id; }),
            program.objects.end());
        for (Stage &stage : program.stages)
            stage.allocates.erase(std::remove(stage.allocates.begin(), stage.allocates.end(), id),
                                  stage.allocates.end());
        program.warnings.erase(std::remove_if(program.warnings.begin(), program.warnings.end(),
                                              [&](const std::string &w) { return w.rfind(id + ":", 0) == 0; }),
                               program.warnings.end());
    }
    if (program.objects.empty())
        throw Refusal("no objects are left; --without excludes all of them");
    std::string unknown;
    for (Object &object : program.objects) {
        if (object.bytes == 0 && options.default_bytes) {
            object.bytes = options.default_bytes;
            object.bytes_from = "--default-bytes";
        }
        if (object.bytes == 0)
            unknown += (unknown.empty() ? "" : ", ") + object.id;
    }
    if (!unknown.empty())
        throw Refusal("the size is not known of " + unknown +
                      "; say typical_bytes in stingy.toml, or --object ID=BYTES, --profile FILE, --default-bytes N");
}

} // namespace

bool lives_with(const Object &a, const Object &b) {
    // Objects with a doubtful or unknown lifetime share nothing.
    if (a.is_doubtful || b.is_doubtful || a.live.empty() || b.live.empty())
        return true;
    return std::any_of(a.live.begin(), a.live.end(), [&](const std::string &stage) { return b.live.count(stage) > 0; });
}

Program read_program(const Options &options) {
    json input = parse_file(options.input);
    Program program;
    try {
        if (!input.is_object() || input.value("memwalk", 0) != 1)
            throw Refusal(options.input + ": not memwalk's output of version 1");
        for (const json &stage : input.at("stages"))
            program.stages.push_back(read_stage(stage));
        for (const json &object : input.at("objects"))
            program.objects.push_back(read_object(object, program.warnings));
        if (program.stages.empty() || program.objects.empty())
            throw Refusal(options.input + ": no stages, or no per-request objects; see memwalk --report");
        for (const json &global : input.at("globals"))
            // Each thread has its own copy of a thread-local variable.
            if (!global.value("is_thread_local", false) && !global.at("stages").empty())
                program.globals_bytes += round_up(size_field(global, "bytes", "a global"), 16);
        if (program.stages.size() > MOST || program.objects.size() > MOST)
            throw Refusal(options.input + ": more than 1024 stages or objects");
        order_stages(program, input.at("edges"));
        check_names(program);
    } catch (const json::exception &error) {
        throw Refusal(options.input + ": does not match memwalk.schema.json: " + error.what());
    }
    if (!options.profile.empty())
        take_profile(program, options);
    take_options(program, options);
    if (std::none_of(program.stages.begin(), program.stages.end(),
                     [&](const Stage &stage) { return lets_in(program, stage); }))
        program.warnings.push_back(
            "no stage allocates a request structure: stingy_room() lets requests in without "
            "limit; name the structure under requests in stingy.toml, or leave out --without for it");
    return program;
}
