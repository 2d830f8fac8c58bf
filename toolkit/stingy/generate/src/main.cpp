// Handles options, files, and the printed decisions.
#include "stingygen.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <getopt.h>
#include <iostream>
#include <unistd.h>

namespace {

const char USAGE[] =
    "usage: stingygen mem.json -o DIR [--l2 SIZE] [--share 50%] [--profile FILE]\n"
    "                 [--object ID=BYTES|ID=BYTESxCOUNT]... [--slots ID=N]... [--without ID]...\n"
    "                 [--default-bytes N] [--requests N]\n"
    "                 [--stack SIZE] [--low SIZE] [--high SIZE]\n"
    "\n"
    "Makes DIR if there is none, and writes DIR/stingy_gen.c and DIR/stingy_gen.h: the memory map of a server's "
    "per-request objects and "
    "stingy_room().\n"
    "  --l2 SIZE         the cache (default: this machine's L2); --share: the part of it for the cache slab\n"
    "  --profile FILE    sizes as measured (STINGY_PROFILE=FILE): an object's p95 instead of its analysed size;\n"
    "                    for a request structure of unknown size its largest\n"
    "  --object ID=B[xN] the size of an object, and how many a request holds\n"
    "  --slots ID=N      slots of an object that few requests need; they do not limit who is let in\n"
    "  --without ID      left to malloc: an object that is not one request's, or that never fits\n"
    "  --stack SIZE      stack of the event loop in the cache slab, for stingy_call_on_stack (default: the deepest "
    "stage's\n"
    "                    bound, if memwalk has one for each; 0: not in the slab)\n";

[[noreturn]] void wrong(const std::string &what) {
    std::cerr << "stingygen: " << what << "\n";
    exit(2);
}

uint64_t number(const std::string &text, const char *suffixes, const char *option) {
    size_t used = 0;
    uint64_t n = 0;
    try {
        if (!text.empty() && isdigit((unsigned char)text[0]))
            n = std::stoull(text, &used);
    } catch (const std::exception &) {
        used = 0;
    }
    std::string rest = text.substr(used);
    if (rest.size() > 1 && rest.substr(1) == "iB")
        rest.resize(1);
    const char *unit = rest.size() == 1 ? strchr(suffixes, rest[0]) : nullptr;
    if (used == 0 || (!rest.empty() && !unit) || n > (UINT64_C(1) << 31))
        wrong(std::string(option) + " " + text + ": not a number such as 4096" + (*suffixes ? ", 512K or 2M" : ""));
    n <<= !unit ? 0 : *unit == 'K' || *unit == 'k' ? 10 : 20;
    if (n > (UINT64_C(1) << 30))
        wrong(std::string(option) + " " + text + ": more than 1 GiB");
    return n;
}

uint64_t size(const std::string &text, const char *option) {
    return number(text, "KkM", option);
}

uint64_t above_zero(uint64_t n, const std::string &value, const char *option) {
    if (n == 0)
        wrong(std::string(option) + " " + value + ": not 1 or more");
    return n;
}

std::pair<std::string, std::string> assignment(const std::string &text, const char *option) {
    size_t at = text.find('=');
    if (at == std::string::npos || at == 0)
        wrong(std::string(option) + " " + text + ": not ID=NUMBER");
    return {text.substr(0, at), text.substr(at + 1)};
}

// Returns the size of CPU 0's L2 cache, from the kernel.
uint64_t own_l2() {
    for (int i = 0; i < 8; i++) {
        std::string base = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i), level, bytes;
        std::ifstream(base + "/level") >> level;
        std::ifstream(base + "/size") >> bytes;
        if (level == "2" && !bytes.empty())
            return size(bytes, "the kernel's L2 size");
    }
    wrong("this machine does not report the size of its L2 cache; give --l2 SIZE");
}

const option LONG_OPTIONS[] = {
    {"help", no_argument, nullptr, 'h'},
    {"l2", required_argument, nullptr, 0},
    {"share", required_argument, nullptr, 0},
    {"profile", required_argument, nullptr, 0},
    {"object", required_argument, nullptr, 0},
    {"slots", required_argument, nullptr, 0},
    {"without", required_argument, nullptr, 0},
    {"default-bytes", required_argument, nullptr, 0},
    {"requests", required_argument, nullptr, 0},
    {"stack", required_argument, nullptr, 0},
    {"low", required_argument, nullptr, 0},
    {"high", required_argument, nullptr, 0},
    {},
};

Options parse(int argc, char **argv) {
    Options options;
    opterr = 0; // this program prints its own errors
    for (int code, at = 0; (code = getopt_long(argc, argv, ":ho:", LONG_OPTIONS, &at)) != -1;) {
        if (code == 'h') {
            std::cout << USAGE;
            exit(0);
        }
        if (code == ':')
            wrong(std::string(argv[optind - 1]) + " needs a value; see --help");
        if (code == '?')
            wrong((optopt ? std::string("-") + (char)optopt : argv[optind - 1]) + ": no such option; see --help");
        std::string name = code ? "" : LONG_OPTIONS[at].name, value = optarg;
        if (code == 'o')
            options.output = value;
        else if (name == "l2")
            options.l2_bytes = above_zero(size(value, "--l2"), value, "--l2");
        else if (name == "share") {
            uint64_t percent =
                number(value.substr(0, value.size() - (!value.empty() && value.back() == '%')), "", "--share");
            if (percent < 1 || percent > 100)
                wrong("--share " + value + ": not from 1% to 100%");
            options.share = (double)percent / 100;
        } else if (name == "profile")
            options.profile = value;
        else if (name == "object") {
            auto [id, text] = assignment(value, "--object");
            size_t x = text.find('x');
            SizeOption &object = options.sizes[id];
            object.bytes = above_zero(size(text.substr(0, x), "--object"), value, "--object");
            if (x != std::string::npos)
                object.per_request =
                    (uint32_t)above_zero(number(text.substr(x + 1), "", "--object"), value, "--object");
        } else if (name == "without")
            options.without.insert(value);
        else if (name == "slots") {
            auto [id, text] = assignment(value, "--slots");
            uint64_t slots = number(text, "", "--slots");
            if (slots < 1 || slots > 65535)
                wrong("--slots " + value + ": not from 1 to 65535");
            options.slots[id] = (uint32_t)slots;
        } else if (name == "default-bytes")
            options.default_bytes = above_zero(size(value, "--default-bytes"), value, "--default-bytes");
        else if (name == "requests")
            options.requests = (uint32_t)above_zero(number(value, "", "--requests"), value, "--requests");
        else if (name == "stack")
            options.stack_bytes = size(value, "--stack");
        else if (name == "low")
            options.low_bytes = size(value, "--low");
        else if (name == "high")
            options.high_bytes = size(value, "--high");
    }
    if (argc - optind > 1)
        wrong(std::string("one input, not ") + argv[optind] + " and " + argv[optind + 1]);
    if (optind < argc)
        options.input = argv[optind];
    if (options.input.empty() || options.output.empty())
        wrong("give an input and -o DIR; see --help");
    for (const std::string &id : options.without)
        if (options.sizes.count(id) || options.slots.count(id))
            wrong("--without " + id + " leaves it to malloc, and --" + (options.sizes.count(id) ? "object" : "slots") +
                  " " + id + " applies only to objects in the map");
    if (options.l2_bytes == 0)
        options.l2_bytes = own_l2();
    return options;
}

// Writes the file completely or not at all: a build must not see half a file.
void write(const std::string &path, const std::string &text) {
    // A device, a pipe or a link is written directly: a rename would replace it by a file.
    std::filesystem::file_status found = std::filesystem::symlink_status(path);
    bool is_special = std::filesystem::exists(found) && !std::filesystem::is_regular_file(found);
    std::string temporary = is_special ? path : path + ".new";
    std::ofstream file(temporary, std::ios::binary);
    file << text;
    file.close();
    if (!file || (!is_special && rename(temporary.c_str(), path.c_str()) != 0))
        throw Refusal(path + ": cannot be written: " + strerror(errno));
}

} // namespace

int main(int argc, char **argv) {
    Options options = parse(argc, argv);
    try {
        Program program = read_program(options);
        Layout layout = place(program, options);
        if (options.requests > layout.requests)
            program.warnings.push_back("--requests " + std::to_string(options.requests) + ": only " +
                                       std::to_string(layout.requests) +
                                       " fit; raise --l2 or --share, or lower sizes (--object, --profile)");
        std::error_code error;
        std::filesystem::create_directories(options.output, error);
        if (error)
            throw Refusal(options.output + ": cannot be made: " + error.message());
        write(options.output + "/stingy_gen.h", emit_header(program, layout));
        write(options.output + "/stingy_gen.c", emit_source(program, layout, options));
        for (const std::string &warning : program.warnings)
            std::cerr << "stingygen: " << warning << "\n";
        std::cout << layout.requests << " requests of " << layout.request_bytes << " bytes fit into a cache slab of "
                  << layout.cache_bytes << " bytes\n";
        for (const Region &region : layout.regions)
            std::cout << "  " << region.slots << " slots of " << region.slot_bytes << " bytes: " << region.name << "\n";
        std::cout << "  " << layout.stack_bytes << " bytes of stack, " << layout.globals_bytes << " for globals\n";
    } catch (const Refusal &refusal) {
        std::cerr << "stingygen: " << refusal.what() << "\n";
        return 1;
    }
    return 0;
}
