// A walk over the syntax tree of C. It visits the declarations, statements and expressions of the source, each before
// its parts. It replaces Clang's RecursiveASTVisitor, which also handles C++ and takes seconds to compile for each
// class.
#pragma once

namespace clang {
class Decl;
class Stmt;
} // namespace clang

namespace stingy {

class Walk {
  public:
    virtual ~Walk() = default;
    void walk(clang::Decl *decl);
    void walk(clang::Stmt *statement);

  protected:
    virtual void visit(clang::Decl *) {}
    virtual void visit(clang::Stmt *) {}
    virtual void leave(clang::Decl *) {} ///< after what is in it
};

} // namespace stingy
