// Changes of source text, and their unified diff.
#pragma once
#include <map>
#include <string>

namespace stingy {

struct Edit {
    unsigned length = 0; ///< bytes replaced
    std::string text;
    bool operator==(const Edit &o) const { return length == o.length && text == o.text; }
};

/// Edits of files, by offset. An edit that is added twice (a header in two units) counts once.
class Edits {
  public:
    /// Returns false and adds nothing if another edit overlaps.
    bool add(const std::string &file, unsigned offset, Edit edit);
    /// Adds whole lines after the line of an offset and after lines added there before.
    void insert_line(const std::string &file, const std::string &contents, unsigned offset, const std::string &lines);
    /// Adds an #include line before all edits, after the file's own ones and the lines before them. If all edits are
    /// under a condition, the line may be under it, too.
    void include(const std::string &file, const std::string &contents, const std::string &header);
    bool empty() const { return files.empty(); }
    std::map<std::string, std::map<unsigned, Edit>> files;
};

/// Makes hunks with three lines of context; names are relative to the root, so that `patch -p1` applies the diff
/// there.
std::string unified_diff(const std::string &shown_name, const std::string &contents,
                         const std::map<unsigned, Edit> &edits);

} // namespace stingy
