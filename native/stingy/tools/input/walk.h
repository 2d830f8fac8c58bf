// A walk over the syntax tree of C. It visits declarations, statements and expressions that the source has, each before
// what is in it. Clang's RecursiveASTVisitor knows C++ too, and every class that is made from it compiles for seconds.
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
