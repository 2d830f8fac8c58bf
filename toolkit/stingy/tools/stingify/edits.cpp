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
    if (StringRef(contents).contains("\"" + header + "\""))
        return;
    auto &edits = files[file];
    // The ends of preprocessor lines, each with its enclosing conditions.
    using Conditions = std::vector<unsigned>;
    struct Point {
        unsigned at;
        Conditions within;
        bool is_include; // or the end of a condition that contains an include
    };
    struct Begun {
        unsigned includes, nesting;
        bool is_cplusplus;
    };
    std::vector<Point> points;
    std::vector<Begun> begun;
    Conditions within;
    std::optional<Conditions> around_all; // conditions around all edits
    unsigned conditions = 0, includes = 0, nesting = 0;
    clang::tok::TokenKind last = clang::tok::semi;
    auto edit = edits.begin();
    auto pass_edits = [&](unsigned end) {
        for (; edit != edits.end() && edit->first < end; ++edit) {
            if (!around_all)
                around_all = within;
            around_all->resize(
                std::mismatch(around_all->begin(), around_all->end(), within.begin(), within.end()).first -
                around_all->begin());
        }
    };
    clang::LangOptions options;
    options.LineComment = true;
    clang::Lexer lexer({}, options, contents.data(), contents.data(), contents.data() + contents.size());
    lexer.SetCommentRetentionState(true);
    clang::Token token;
    lexer.LexFromRawLexer(token);
    while (token.isNot(clang::tok::eof)) {
        pass_edits(token.getLocation().getRawEncoding());
        if (token.isNot(clang::tok::hash) || !token.isAtStartOfLine()) {
            if (token.isOneOf(clang::tok::l_brace, clang::tok::l_paren, clang::tok::l_square))
                nesting++;
            if (token.isOneOf(clang::tok::r_brace, clang::tok::r_paren, clang::tok::r_square) && nesting)
                nesting--;
            if (token.isNot(clang::tok::comment))
                last = token.getKind();
            lexer.LexFromRawLexer(token);
            continue;
        }
        StringRef word;
        bool is_cplusplus = false;
        size_t end;
        do {
            end = lexer.getBufferLocation() - contents.data();
            if (token.is(clang::tok::raw_identifier)) {
                if (word.empty())
                    word = token.getRawIdentifier();
                is_cplusplus |= token.getRawIdentifier() == "__cplusplus";
            }
            lexer.LexFromRawLexer(token);
        } while (token.isNot(clang::tok::eof) && !token.isAtStartOfLine());
        end = std::min(contents.find('\n', end), contents.size() - 1) + 1;
        pass_edits(end);
        bool is_between = nesting == 0 && (last == clang::tok::semi || last == clang::tok::r_brace);
        bool is_include = word.starts_with("include") && is_between;
        includes += is_include;
        if (word.starts_with("if")) {
            begun.push_back({includes, nesting, is_cplusplus});
            within.push_back(++conditions);
        } else if (word.starts_with("el") && !begun.empty()) {
            nesting = begun.back().nesting;
            within.back() = ++conditions;
        } else if (word == "endif" && !begun.empty()) {
            is_include = includes > begun.back().includes;
            if (begun.back().is_cplusplus)
                nesting = begun.back().nesting; // extern "C" {
            begun.pop_back(), within.pop_back();
        }
        if (is_between && edit == edits.begin())
            points.push_back({unsigned(end), within, is_include});
    }
    pass_edits(contents.size() + 1);
    // The last place from which all edits see the header; it is best after the file's own headers.
    unsigned after = 0;
    bool is_after_include = false;
    for (const Point &point : points) {
        const Conditions all = around_all.value_or(Conditions());
        bool is_seen =
            point.within.size() <= all.size() && std::equal(point.within.begin(), point.within.end(), all.begin());
        if (is_seen && (point.is_include || !is_after_include))
            after = point.at, is_after_include = point.is_include;
    }
    std::string text = "#include \"" + header + "\"" + (StringRef(contents).contains("\r\n") ? "\r\n" : "\n");
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
            // In adjacent lines, all removed lines come before all added ones.
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
