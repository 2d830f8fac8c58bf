#include "stingify/edits.h"
#include "pch.h"

using namespace llvm;

namespace stingy {

bool Edits::add(const std::string &file, unsigned offset, Edit edit) {
    auto &edits = files[file];
    auto next = edits.lower_bound(offset);
    if (next != edits.end() && next->first == offset)
        return next->second == edit;
    if (next != edits.end() && offset + edit.length > next->first)
        return false;
    if (next != edits.begin() && std::prev(next)->first + std::prev(next)->second.length > offset)
        return false;
    edits.emplace(offset, std::move(edit));
    return true;
}

void Edits::insert_line(const std::string &file, const std::string &contents, unsigned offset,
                        const std::string &lines) {
    size_t end = contents.find('\n', offset);
    size_t at = end == std::string::npos ? contents.size() : end + 1;
    std::string text = end == std::string::npos ? "\n" + lines : lines;
    auto [old, is_new] = files[file].emplace(unsigned(at), Edit{0, text});
    if (!is_new)
        old->second.text = old->second.length == 0 ? old->second.text + text : text + old->second.text;
}

void Edits::include(const std::string &file, const std::string &contents, const std::string &header) {
    // Preprocessor lines, except in comments and in conditions other than a header's guard.
    unsigned depth = 0, offset = 0, after = 0, guard_end = 0,
             first_use = files[file].empty() ? unsigned(-1) : files[file].begin()->first;
    bool is_comment = false, is_continued = false;
    std::string line_end = StringRef(contents).contains("\r\n") ? "\r\n" : "\n";
    StringRef rest = contents;
    bool is_guard_possible = true;
    while (!rest.empty()) {
        auto [line, tail] = rest.split('\n');
        unsigned next = rest.contains('\n') ? offset + line.size() + 1 : offset + line.size();
        StringRef text = line.trim();
        bool was_comment = is_comment;
        for (size_t i = 0; i + 1 < line.size(); i++) {
            if (!is_comment && line[i] == '/' && line[i + 1] == '/')
                break;
            if (!is_comment && line[i] == '"') {
                for (i++; i < line.size() && line[i] != '"'; i++)
                    if (line[i] == '\\')
                        i++;
                continue;
            }
            if (!is_comment && line[i] == '/' && line[i + 1] == '*')
                is_comment = true, i++;
            else if (is_comment && line[i] == '*' && line[i + 1] == '/')
                is_comment = false, i++;
        }
        if (!was_comment && !is_continued && text.consume_front("#")) {
            text = text.ltrim();
            if (text.starts_with("if")) {
                // The guard at the beginning of a header does not count as a condition.
                if (is_guard_possible && text.starts_with("ifndef"))
                    guard_end = 1;
                else
                    depth++;
                is_guard_possible = false;
            } else if (text.starts_with("endif")) {
                if (depth)
                    depth--;
                else
                    guard_end = 0;
            } else if (text.starts_with("include") && depth == 0 && next <= first_use)
                after = next;
            else if (guard_end && text.starts_with("define") && after == 0)
                after = next;
            if (!text.starts_with("define"))
                is_guard_possible = false;
        }
        is_continued = line.rtrim("\r").ends_with("\\");
        offset = next;
        rest = tail;
    }
    auto &edits = files[file];
    std::string text = "#include \"" + header + "\"" + line_end;
    if (StringRef(contents).contains("\"" + header + "\""))
        return;
    auto [old, is_new] = edits.emplace(after, Edit{0, text});
    if (!is_new)
        old->second.text = text + old->second.text;
}

namespace {

std::vector<StringRef> lines_of(StringRef text) {
    std::vector<StringRef> lines;
    while (!text.empty()) {
        size_t end = text.find('\n');
        size_t length = end == StringRef::npos ? text.size() : end + 1;
        lines.push_back(text.take_front(length));
        text = text.drop_front(length);
    }
    return lines;
}

void add_line(std::string &out, char mark, StringRef line) {
    out += mark;
    out += line.str();
    if (!line.ends_with("\n"))
        out += "\n\\ No newline at end of file\n";
}

} // namespace

std::string unified_diff(const std::string &shown_name, const std::string &contents,
                         const std::map<unsigned, Edit> &edits) {
    std::vector<StringRef> lines = lines_of(contents);
    std::vector<unsigned> begins;
    unsigned offset = 0;
    for (StringRef line : lines)
        begins.push_back(offset), offset += line.size();
    auto line_at = [&](unsigned at) {
        return unsigned(std::upper_bound(begins.begin(), begins.end(), at) - begins.begin()) - 1;
    };
    // Ranges of whole lines that change, with their new text.
    struct Change {
        unsigned first, last;
        std::string text;
        bool is_insertion;
    };
    std::vector<Change> changes;
    for (auto it = edits.begin(); it != edits.end();) {
        unsigned first =
            lines.empty() ? 0 : line_at(std::min<unsigned>(it->first, contents.size() ? contents.size() - 1 : 0));
        bool is_insertion = it->second.length == 0 && StringRef(it->second.text).ends_with("\n") &&
                            (first >= lines.size() || it->first == begins[first] || it->first == contents.size());
        if (is_insertion) {
            unsigned at = it->first == contents.size() ? lines.size() : first;
            changes.push_back({at, at, it->second.text, true});
            ++it;
            continue;
        }
        unsigned last = line_at(it->first + std::max(1u, it->second.length) - 1), position = begins[first];
        std::string text;
        for (; it != edits.end() && line_at(it->first) <= last; ++it) {
            if (it->second.length == 0 && StringRef(it->second.text).ends_with("\n"))
                break;
            text += contents.substr(position, it->first - position) + it->second.text;
            position = it->first + it->second.length;
            last = std::max(last, line_at(it->first + std::max(1u, it->second.length) - 1));
        }
        text += contents.substr(position, begins[last] + lines[last].size() - position);
        changes.push_back({first, last + 1, text, false});
    }
    if (changes.empty())
        return "";
    std::string out = "--- a/" + shown_name + "\n+++ b/" + shown_name + "\n";
    const unsigned context = 3;
    long shift = 0;
    for (size_t i = 0; i < changes.size();) {
        size_t j = i + 1;
        while (j < changes.size() && changes[j].first <= changes[j - 1].last + 2 * context)
            j++;
        unsigned begin = changes[i].first > context ? changes[i].first - context : 0;
        unsigned end = std::min<unsigned>(lines.size(), changes[j - 1].last + context);
        std::string body;
        unsigned at = begin, added = 0, removed = 0;
        for (size_t k = i; k < j; k++) {
            for (; at < changes[k].first; at++)
                add_line(body, ' ', lines[at]);
            // Of adjacent lines, all removed lines come before all added ones.
            std::string text;
            for (bool is_next = true; is_next; is_next ? k++ : k) {
                text += changes[k].text;
                for (; at < changes[k].last; at++)
                    add_line(body, '-', lines[at]), removed++;
                is_next = k + 1 < j && changes[k + 1].first == changes[k].last;
            }
            for (StringRef line : lines_of(text))
                add_line(body, '+', line), added++;
        }
        for (; at < end; at++)
            add_line(body, ' ', lines[at]);
        unsigned old_count = end - begin, new_count = old_count + added - removed;
        out += "@@ -" + std::to_string(old_count ? begin + 1 : begin) + "," + std::to_string(old_count) + " +" +
               std::to_string(long(begin) + (new_count ? 1 : 0) + shift) + "," + std::to_string(new_count) + " @@\n" +
               body;
        shift += long(added) - long(removed);
        i = j;
    }
    return out;
}

} // namespace stingy
