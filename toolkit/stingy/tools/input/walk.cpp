#include "input/walk.h"
#include "pch.h"

using namespace clang;

namespace stingy {

void Walk::walk(Decl *decl) {
    if (decl->isImplicit())
        return;
    visit(decl);
    if (auto *function = dyn_cast<FunctionDecl>(decl)) {
        for (ParmVarDecl *parameter : function->parameters())
            walk(parameter);
        if (function->doesThisDeclarationHaveABody())
            walk(function->getBody());
    } else if (auto *variable = dyn_cast<VarDecl>(decl)) {
        if (variable->hasInit())
            walk(variable->getInit());
    } else if (auto *context = dyn_cast<DeclContext>(decl)) { // the unit, structures
        for (Decl *inner : context->decls())
            walk(inner);
    }
    leave(decl);
}

void Walk::walk(Stmt *statement) {
    if (!statement)
        return;
    visit(statement);
    if (auto *list = dyn_cast<InitListExpr>(statement)) {
        // Walks the list as written if its order or its designators differ from the fields', and field by field.
        if (InitListExpr *written = list->isSemanticForm() ? list->getSyntacticForm() : nullptr)
            for (Stmt *child : written->children())
                walk(child);
        if (InitListExpr *fields = list->isSemanticForm() ? list : list->getSemanticForm())
            list = fields;
    }
    if (auto *declarations = dyn_cast<DeclStmt>(statement)) {
        for (Decl *decl : declarations->decls())
            walk(decl);
        return;
    }
    for (Stmt *child : statement->children())
        walk(child);
}

} // namespace stingy
