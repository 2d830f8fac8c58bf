#include "input/paths.h"
#include "memwalk/stack.h"
#include "pch.h"
#include <atomic>
#include <fstream>
#include <mutex>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char **environ;

using namespace llvm;

namespace stingy {
namespace {

// A return address, which some compilers omit from their report.
constexpr uint64_t return_address_bytes = 8;

/// Lines are `file:line:column:function<TAB>bytes<TAB>static|dynamic|dynamic,bounded`.
bool read_report(const std::string &path, const Unit &unit, Frames &frames) {
    auto buffer = MemoryBuffer::getFile(path, /*IsText=*/true);
    if (!buffer)
        return false;
    SmallVector<StringRef, 0> lines;
    (*buffer)->getBuffer().split(lines, '\n', -1, false);
    for (StringRef line : lines) {
        SmallVector<StringRef, 3> columns;
        line.split(columns, '\t');
        uint64_t bytes = 0;
        if (columns.size() < 3 || columns[1].getAsInteger(10, bytes))
            continue;
        auto [where, function] = columns[0].rsplit(':');
        // file:line:column, or file:line with Clang; a file name may contain colons.
        StringRef file = where;
        for (int i = 0; i < 2; i++)
            if (auto [rest, number] = file.rsplit(':'); !number.empty() && all_of(number, isDigit))
                file = rest;
        // Clones that replace the function (constprop, isra) and parts that it calls.
        auto [plain, suffix] = function.split('.');
        bool is_part = suffix.contains("part");
        Frames::Frame &frame = frames.of[{absolute_path(unit.directory, file.str()), plain.str()}];
        if (is_part)
            frame.bytes += bytes + return_address_bytes;
        else
            frame.bytes = std::max(frame.bytes, bytes + return_address_bytes);
        frame.is_dynamic |= columns[2].starts_with("dynamic") && !columns[2].contains("bounded");
    }
    return true;
}

std::string report_of(const Unit &unit) {
    SmallString<256> path(unit.output);
    sys::path::replace_extension(path, ".su");
    return std::string(path.str());
}

bool is_newer(const std::string &report, const std::string &source) {
    struct stat a, b;
    return stat(report.c_str(), &a) == 0 && stat(source.c_str(), &b) == 0 && a.st_mtime >= b.st_mtime;
}

/// Runs the build's command again, only for its report.
bool compile(const Unit &unit, const std::string &folder, unsigned number, Frames &frames) {
    std::string object = folder + "/" + std::to_string(number) + ".o",
                report = folder + "/" + std::to_string(number) + ".su";
    std::vector<std::string> words = {"/bin/sh", "-c", "cd \"$0\" && exec \"$@\" >/dev/null 2>&1 </dev/null",
                                      unit.directory};
    bool has_c = false;
    for (size_t i = 0; i < unit.command.size(); i++) {
        const std::string &word = unit.command[i];
        if (word == "-o" || word == "-MF" || word == "-MT" || word == "-MQ") {
            i++;
            continue;
        }
        if (word == "-MD" || word == "-MMD" || word == "-MP" || word == "-Werror" || word.rfind("-flto", 0) == 0 ||
            word.rfind("-Wp,-M", 0) == 0)
            continue;
        has_c |= word == "-c";
        words.push_back(word);
    }
    if (!has_c)
        words.push_back("-c");
    words.insert(words.end(), {"-fstack-usage", "-w", "-o", object});
    std::vector<char *> arguments;
    for (std::string &word : words)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child;
    int status = 1;
    if (posix_spawn(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0)
        return false;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    bool is_good = status == 0 && read_report(report, unit, frames);
    sys::fs::remove(object);
    sys::fs::remove(report);
    return is_good;
}

} // namespace

Frames::Frame Frames::find(const Function &function) const {
    auto found = of.find({place_of(function).file, source_name(function)});
    return found == of.end() ? Frame{} : found->second;
}

Frames read_frames(const Program &program, FrameSource source, unsigned jobs, std::vector<Pointers::Warning> &doubts) {
    Frames frames;
    if (source == FrameSource::none) {
        frames.origin = "none were requested";
        return frames;
    }
    std::vector<unsigned> missing;
    unsigned reports = 0;
    for (unsigned i = 0; i < program.units.size(); i++) {
        const Unit &unit = program.units[i];
        bool is_there = source != FrameSource::compile && !unit.output.empty() &&
                        is_newer(report_of(unit), unit.file) && read_report(report_of(unit), unit, frames);
        if (is_there)
            reports++;
        else
            missing.push_back(i);
    }
    unsigned compiled = 0;
    if (source != FrameSource::report && !missing.empty()) {
        SmallString<128> folder;
        if (!sys::fs::createUniqueDirectory("memwalk", folder)) {
            std::mutex lock;
            std::atomic<size_t> next{0};
            std::vector<unsigned> failed;
            auto work = [&] {
                for (size_t i; (i = next++) < missing.size();) {
                    Frames mine;
                    bool is_good = compile(program.units[missing[i]], std::string(folder.str()), missing[i], mine);
                    std::lock_guard<std::mutex> guard(lock);
                    if (!is_good) {
                        failed.push_back(missing[i]);
                        continue;
                    }
                    compiled++;
                    for (auto &[key, frame] : mine.of) {
                        auto &old = frames.of[key];
                        old.bytes = std::max(old.bytes, frame.bytes), old.is_dynamic |= frame.is_dynamic;
                    }
                }
            };
            std::vector<std::thread> threads;
            for (unsigned i = 1; i < jobs; i++)
                threads.emplace_back(work);
            work();
            for (std::thread &thread : threads)
                thread.join();
            sys::fs::remove_directories(folder);
            missing = failed;
        }
    }
    frames.units = reports + compiled;
    std::string compiler =
        program.units[0].command.empty() ? "" : sys::path::filename(program.units[0].command[0]).str();
    frames.origin = "-fstack-usage of " + compiler + ", " + std::to_string(frames.units) + " of " +
                    std::to_string(program.units.size()) + " units";
    std::sort(missing.begin(), missing.end());
    for (unsigned i = 0; i < missing.size() && i < 5; i++)
        doubts.push_back({"no_frames", nullptr,
                          "no stack frames are known for " + shown_path(program.root, program.units[missing[i]].file) +
                              (missing.size() > 5 ? " and " + std::to_string(missing.size() - 5) + " more" : ""),
                          "build with -fstack-usage, or run with --frames=compile where the build's compiler is"});
    return frames;
}

} // namespace stingy
