#include "input/config.h"
#include <set>
#include <toml++/toml.h>

namespace stingy {
namespace {

/// One table of the file; records the keys that were read, so that all others can be refused.
class Reader {
  public:
    Reader(const toml::table &table, std::string where, const std::string &file, std::string &error)
        : table(table), where(std::move(where)), file(file), error(error) {}

    std::string text(const char *key) {
        const toml::node *node = find(key);
        if (!node)
            return "";
        if (auto value = node->value_exact<std::string>())
            return *value;
        wrong(*node, key, "a text in quotes");
        return "";
    }
    std::optional<uint64_t> number(const char *key) {
        const toml::node *node = find(key);
        if (!node)
            return std::nullopt;
        auto value = node->value_exact<int64_t>();
        if (value && *value >= 0 && *value <= (int64_t(1) << 40))
            return uint64_t(*value);
        wrong(*node, key, "a whole number from 0");
        return std::nullopt;
    }
    int argument(const char *key) {
        auto value = number(key);
        if (value && *value > 63)
            fail(*find(key),
                 where + "." + key + ": argument " + std::to_string(*value) + " is too large; arguments count from 0");
        return value && *value <= 63 ? int(*value) : -1;
    }
    bool flag(const char *key) {
        const toml::node *node = find(key);
        if (!node)
            return false;
        if (auto value = node->value_exact<bool>())
            return *value;
        wrong(*node, key, "true or false");
        return false;
    }
    /// Reads a list. `or_one`: a single text is allowed, too.
    std::vector<std::string> texts(const char *key, bool or_one = false) {
        std::vector<std::string> all;
        const toml::node *node = find(key);
        if (!node)
            return all;
        if (or_one && !node->is_array())
            return {text(key)};
        if (const toml::array *array = node->as_array()) {
            for (const toml::node &item : *array) {
                auto value = item.value_exact<std::string>();
                if (!value) {
                    wrong(item, key, "a list of texts");
                    break;
                }
                all.push_back(*value);
            }
        } else
            wrong(*node, key, "a list of texts");
        return all;
    }
    Place place(const char *key = nullptr) {
        const toml::node *node = key ? table.get(key) : nullptr;
        return {file, (node ? node->source() : table.source()).begin.line};
    }
    void need(const char *key) {
        if (!table.contains(key))
            fail(table, where + " lacks the key `" + key + "`");
    }
    void done() {
        for (auto &&[key, node] : table)
            if (!asked.count(std::string(key.str())))
                fail(node,
                     where + " has no key `" + std::string(key.str()) + "`; the keys are in toolkit/stingy/README.md");
    }
    void fail(const toml::node &node, const std::string &what) {
        if (error.empty())
            error = file + ":" + std::to_string(node.source().begin.line) + ": " + what;
    }

  private:
    const toml::node *find(const char *key) {
        asked.insert(key);
        return table.get(key);
    }
    void wrong(const toml::node &node, const char *key, const char *wanted) {
        fail(node, where + "." + key + " must be " + wanted);
    }
    const toml::table &table;
    std::string where;
    const std::string &file;
    std::string &error;
    std::set<std::string> asked;
};

/// Reads every table `[[name]]`.
template <typename Use>
void each(const toml::table &root, const char *name, const std::string &file, std::string &error, Use use) {
    const toml::node *node = root.get(name);
    if (!node)
        return;
    const toml::array *array = node->as_array();
    if (!array || !array->is_array_of_tables()) {
        if (error.empty())
            error = file + ":" + std::to_string(node->source().begin.line) + ": write [[" + name +
                    "]], once for each " + name;
        return;
    }
    for (const toml::node &item : *array) {
        Reader reader(*item.as_table(), std::string("[[") + name + "]]", file, error);
        use(reader);
        reader.done();
    }
}

} // namespace

bool Config::read(const std::string &path, std::string &error) {
    file = path;
    error.clear();
    toml::table root;
    try {
        root = toml::parse_file(path);
    } catch (const toml::parse_error &e) {
        unsigned line = e.source().begin.line;
        error = path + (line ? ":" + std::to_string(line) : "") + ": " + std::string(e.description());
        return false;
    }
    static const std::set<std::string> known = {"scheduler", "queue_stage", "schedule_stage", "stage",
                                                "malloc",    "pool",        "free",           "callback",
                                                "handed_on", "object",      "stack",          "external"};
    for (auto &&[key, node] : root)
        if (error.empty() && !known.count(std::string(key.str())))
            error = path + ":" + std::to_string(node.source().begin.line) + ": there is no section `" +
                    std::string(key.str()) + "`; the sections are in toolkit/stingy/README.md";
    auto section = [&](const char *name, auto use) {
        const toml::node *node = root.get(name);
        if (!node)
            return;
        if (!node->is_table()) {
            if (error.empty())
                error = path + ":" + std::to_string(node->source().begin.line) + ": write [" + name + "], once";
            return;
        }
        Reader reader(*node->as_table(), std::string("[") + name + "]", file, error);
        use(reader);
        reader.done();
    };
    section("scheduler", [&](Reader &r) {
        scheduler = r.text("function"), scheduler_place = r.place("function");
        dispatch = r.text("dispatch"), dispatch_place = r.place("dispatch");
        requests = r.texts("requests"), requests_place = r.place("requests");
        state_place = r.place("state");
        for (const std::string &state : r.texts("state", true)) {
            size_t dot = state.find('.');
            if (dot == 0 || dot == std::string::npos || dot + 1 == state.size()) {
                if (error.empty())
                    error = state_place.text() + ": [scheduler].state must be structure.field, as conn.state";
            } else
                states.push_back({state.substr(0, dot), state.substr(dot + 1)});
        }
        outside = r.texts("outside"), outside_place = r.place("outside");
    });
    section("stack", [&](Reader &r) {
        if (auto bytes = r.number("external_bytes"))
            external_bytes = *bytes;
    });
    auto stage_calls = [&](const char *name, std::map<std::string, StageCall> &into) {
        each(root, name, path, error, [&](Reader &r) {
            r.need("function"), r.need("stage");
            std::string function = r.text("function");
            StageCall call{r.argument("request"), r.argument("stage"), r.place()};
            auto [old, is_new] = into.emplace(function, call);
            if (!is_new && (old->second.stage != call.stage || old->second.request != call.request) && error.empty())
                error = call.place.text() + ": " + function + " is described differently in line " +
                        std::to_string(old->second.place.line) + "; keep one of the two";
        });
    };
    stage_calls("queue_stage", queue_stage);
    stage_calls("schedule_stage", schedule_stage);
    each(root, "stage", path, error, [&](Reader &r) {
        r.need("name"), r.need("entry");
        NamedStage stage{r.text("name"), r.text("entry"), r.text("list"), r.texts("after"), r.place()};
        for (const NamedStage &other : stages)
            if (other.name == stage.name && error.empty())
                error = stage.place.text() + ": the stage " + stage.name + " already exists in line " +
                        std::to_string(other.place.line) + "; names must differ";
        stages.push_back(stage);
    });
    each(root, "malloc", path, error, [&](Reader &r) {
        r.need("function");
        std::string function = r.text("function");
        Allocator a;
        a.size = r.argument("size"), a.count = r.argument("count"), a.pointer = r.argument("pointer"),
        a.pool = r.argument("pool"), a.through = r.argument("through");
        a.type = r.text("type"), a.zeroes = r.flag("zeroes"), a.place = r.place();
        if (a.size < 0 && a.type.empty() && error.empty())
            error =
                a.place.text() + ": [[malloc]] " + function + " needs `size` (an argument) or `type` (what it returns)";
        if (!malloc_like.emplace(function, a).second && error.empty())
            error = a.place.text() + ": [[malloc]] " + function + " appears twice; keep one";
    });
    each(root, "pool", path, error, [&](Reader &r) {
        r.need("create"), r.need("destroy");
        std::string create = r.text("create");
        Allocator a;
        a.size = r.argument("size"), a.is_pool = true, a.place = r.place();
        if (!malloc_like.emplace(create, a).second && error.empty())
            error = a.place.text() + ": " + create + " already exists in line " +
                    std::to_string(malloc_like[create].place.line) + "; keep one";
        for (const std::string &destroy : r.texts("destroy", true)) {
            Allocator end;
            end.pointer = 0, end.is_pool = true, end.place = r.place();
            if (!free_like.emplace(destroy, end).second && error.empty())
                error = end.place.text() + ": " + destroy + " already exists in line " +
                        std::to_string(free_like[destroy].place.line) + "; keep one";
        }
    });
    each(root, "free", path, error, [&](Reader &r) {
        r.need("function"), r.need("pointer");
        std::string function = r.text("function");
        Allocator a;
        a.pointer = r.argument("pointer"), a.pool = r.argument("pool"), a.place = r.place();
        if (malloc_like.count(function) && error.empty())
            error = a.place.text() + ": " + function + " is named under [[malloc]] (line " +
                    std::to_string(malloc_like[function].place.line) + ") and under [[free]]; it cannot be both";
        free_like.emplace(function, a);
    });
    each(root, "callback", path, error, [&](Reader &r) {
        r.need("function"), r.need("argument");
        std::string function = r.text("function");
        callbacks.emplace(function, Callback{r.argument("argument"), r.flag("later"), r.place()});
    });
    each(root, "handed_on", path, error, [&](Reader &r) {
        r.need("function"), r.need("frees");
        std::string function = r.text("function");
        HandedOn handed{r.texts("frees"), r.place()};
        if (!handed_on.emplace(function, handed).second && error.empty())
            error = handed.place.text() + ": [[handed_on]] " + function + " appears twice; keep one";
    });
    each(root, "object", path, error, [&](Reader &r) {
        ObjectSize o{r.text("id"),          r.text("type"),          r.number("typical_bytes"),
                     r.number("max_bytes"), r.number("per_request"), r.place()};
        if (o.id.empty() == o.type.empty() && error.empty())
            error = o.place.text() + ": [[object]] needs `id` or `type`, and not both";
        if (o.typical && o.most && *o.typical > *o.most && error.empty())
            error = o.place.text() + ": typical_bytes is larger than max_bytes";
        objects.push_back(o);
    });
    each(root, "external", path, error, [&](Reader &r) {
        r.need("function"), r.need("stack_bytes");
        std::string function = r.text("function");
        if (auto bytes = r.number("stack_bytes"))
            external_stack[function] = *bytes;
    });
    return error.empty();
}

void Config::add_known() {
    auto allocator = [&](const char *name, int size, int count = -1, int pointer = -1, const char *like = "",
                         bool zeroes = false) {
        Allocator a;
        a.size = size, a.count = count, a.pointer = pointer, a.like = like, a.zeroes = zeroes;
        malloc_like.emplace(name, a);
    };
    allocator("malloc", 0);
    allocator("calloc", 1, 0, -1, "", true);
    allocator("realloc", 1, -1, 0);
    allocator("reallocarray", 2, 1, 0);
    allocator("aligned_alloc", 1);
    allocator("memalign", 1);
    allocator("strdup", -1, -1, -1, "strdup");
    allocator("strndup", 1, -1, -1, "strndup");
    allocator("__strdup", -1, -1, -1, "strdup");
    allocator("wcsdup", -1, -1, -1, "strdup");
    allocator("valloc", 0);
    allocator("pvalloc", 0);
    // The block is returned through an argument.
    auto through = [&](const char *name, int argument, const char *what, int size = -1, bool resizes = false) {
        Allocator a;
        a.through = argument, a.resizes = resizes, a.like = what, a.size = size, a.is_foreign = true;
        malloc_like.emplace(name, a);
    };
    through("posix_memalign", 0, "", 2);
    for (const char *name : {"asprintf", "vasprintf", "__asprintf_chk", "__vasprintf_chk", "open_memstream"})
        through(name, 0, "printed text");
    for (const char *name : {"getline", "getdelim", "__getdelim"})
        through(name, 0, "input text", -1, true);
    // These allocate only if they get no buffer.
    for (auto [name, argument] : {std::make_pair("realpath", 1), std::make_pair("getcwd", 0)}) {
        Allocator a;
        a.unless = argument, a.like = "the name of a file", a.is_foreign = true;
        malloc_like.emplace(name, a);
    }
    for (const char *name : {"canonicalize_file_name", "get_current_dir_name", "tempnam"})
        allocator(name, -1, -1, -1, "the name of a file"), malloc_like.at(name).is_foreign = true;
    for (const char *name : {"free", "cfree"}) {
        Allocator a;
        a.pointer = 0;
        free_like.emplace(name, a);
    }
    // Called during the call: C library. Called later: libevent, libev, POSIX timers, signals, threads.
    struct Known {
        const char *name;
        int argument;
        bool later;
    };
    static const Known known[] = {
        {"qsort", 3, false},
        {"qsort_r", 3, false},
        {"bsearch", 4, false},
        {"lfind", 4, false},
        {"lsearch", 4, false},
        {"tsearch", 2, false},
        {"tfind", 2, false},
        {"tdelete", 2, false},
        {"twalk", 1, false},
        {"ftw", 1, false},
        {"nftw", 1, false},
        {"scandir", 2, false},
        {"scandir", 3, false},
        {"glob", 2, false},
        {"dl_iterate_phdr", 0, false},
        {"pthread_once", 1, false},
        {"pthread_create", 2, true},
        {"pthread_atfork", 0, true},
        {"pthread_atfork", 1, true},
        {"pthread_atfork", 2, true},
        {"pthread_key_create", 1, true},
        {"atexit", 0, true},
        {"on_exit", 0, true},
        {"signal", 1, true},
        {"sigset", 1, true},
        {"bsd_signal", 1, true},
        {"__sysv_signal", 1, true},
        {"event_set", 3, true},
        {"event_assign", 4, true},
        {"event_new", 3, true},
        {"event_once", 2, true},
        {"event_base_once", 3, true},
        {"bufferevent_setcb", 1, true},
        {"bufferevent_setcb", 2, true},
        {"bufferevent_setcb", 3, true},
        {"bufferevent_new", 1, true},
        {"bufferevent_new", 2, true},
        {"evconnlistener_new_bind", 1, true},
        {"evhttp_set_gencb", 1, true},
        {"ev_io_init", 1, true},
        {"event_set_log_callback", 0, true},
        {"event_set_mem_functions", 0, true},
    };
    for (const Known &k : known) {
        bool is_told = false;
        auto range = callbacks.equal_range(k.name);
        for (auto it = range.first; it != range.second; ++it)
            is_told |= it->second.argument == k.argument || it->second.place.line != 0;
        if (!is_told)
            callbacks.emplace(k.name, Callback{k.argument, k.later, {}});
    }
    for (auto &&[name, bytes] : std::map<std::string, uint64_t>{{"syslog", 12288},
                                                                {"vsyslog", 12288},
                                                                {"getaddrinfo", 65536},
                                                                {"gethostbyname", 65536},
                                                                {"getnameinfo", 65536},
                                                                {"getpwnam", 16384},
                                                                {"getgrnam", 16384},
                                                                {"dlopen", 16384},
                                                                {"glob", 32768},
                                                                {"realpath", 16384}})
        external_stack.emplace(name, bytes);
}

} // namespace stingy
