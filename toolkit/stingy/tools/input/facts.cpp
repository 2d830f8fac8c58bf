#include "input/facts.h"
#include "input/paths.h"
#include "input/walk.h"
#include "pch.h"

using namespace clang;

namespace stingy {

const Field *Record::find(const std::string &wanted) const {
    for (const Field &field : fields)
        if (field.name == wanted)
            return &field;
    return nullptr;
}

std::string Facts::record_named(const std::string &name) const {
    std::string plain = name;
    for (const char *word : {"struct ", "union "})
        if (plain.rfind(word, 0) == 0)
            plain = plain.substr(std::strlen(word));
    if (records.count(plain))
        return plain;
    auto alias = aliases.find(plain);
    return alias != aliases.end() && records.count(alias->second) ? alias->second : "";
}

bool fits(const Signature &called, const Signature &callee) {
    if (called.empty() || callee.empty())
        return true;
    for (size_t i = 0; i < called.size() || i < callee.size(); i++) {
        if ((i < called.size() && called[i] == "...") || (i < callee.size() && callee[i] == "..."))
            return true;
        if (i >= called.size() || i >= callee.size() || called[i] != callee[i])
            return false;
    }
    return true;
}

bool Facts::can_be_called_as(const std::string &function, const Signature &type) const {
    auto known = signatures.find(function);
    if (known == signatures.end())
        return true;
    for (const Signature &own : known->second) {
        if (fits(type, own))
            return true;
        if (auto casts_of = casts.find(own); casts_of != casts.end())
            for (const Signature &to : casts_of->second)
                if (fits(type, to))
                    return true;
    }
    return false;
}

void Facts::add(Facts &&other) {
    for (auto &[name, record] : other.records) {
        auto [old, is_new] = records.emplace(name, record);
        if (!is_new && record.is_request)
            old->second.is_request = true;
    }
    aliases.merge(other.aliases);
    accesses.merge(other.accesses);
    for (auto &[field, names] : other.values)
        values[field].merge(names);
    for (auto &[argument, names] : other.passed)
        passed[argument].merge(names);
    for (auto &call : other.calls) {
        auto range = calls.equal_range(call.first);
        bool is_known = false;
        for (auto it = range.first; it != range.second; ++it)
            is_known |= it->second.callee == call.second.callee && it->second.column == call.second.column;
        if (!is_known)
            calls.insert(call);
    }
    for (auto &[function, notes] : other.function_notes) {
        auto &mine = function_notes[function];
        for (Note &note : notes) {
            bool is_known = false;
            for (const Note &old : mine)
                is_known |= old.text == note.text;
            if (!is_known)
                mine.push_back(note);
        }
    }
    for (auto &[function, numbers] : other.void_parameters)
        void_parameters[function].merge(numbers);
    for (auto &[function, types] : other.signatures)
        signatures[function].merge(types);
    for (auto &[type, types] : other.casts)
        casts[type].merge(types);
    for (auto &[at, types] : other.pointer_calls)
        pointer_calls[at].merge(types);
}

namespace {

/// The name that other code uses for a structure: its tag, or its typedef if it has no tag.
std::string name_of(const RecordDecl *record) {
    if (!record)
        return "";
    if (record->getIdentifier())
        return record->getName().str();
    if (const TypedefNameDecl *alias = record->getTypedefNameForAnonDecl())
        return alias->getName().str();
    return "";
}

class FactWalk : public Walk {
  public:
    FactWalk(ASTContext &context, const std::string &directory, Facts &facts)
        : context(context), sources(context.getSourceManager()), directory(directory), facts(facts) {}

  private:
    void visit(Decl *decl) override {
        if (auto *function = dyn_cast<FunctionDecl>(decl)) {
            outer.push_back(current);
            current = function->doesThisDeclarationHaveABody() ? function : nullptr;
            visit_function(function);
        } else if (auto *alias = dyn_cast<TypedefDecl>(decl))
            visit_typedef(alias);
        else if (auto *record = dyn_cast<RecordDecl>(decl))
            visit_record(record);
        else if (auto *variable = dyn_cast<VarDecl>(decl))
            visit_variable(variable);
    }
    void leave(Decl *decl) override {
        if (!isa<FunctionDecl>(decl))
            return;
        current = outer.back();
        outer.pop_back();
    }
    void visit(Stmt *statement) override {
        if (auto *binary = dyn_cast<BinaryOperator>(statement))
            visit_binary(binary);
        else if (auto *unary = dyn_cast<UnaryOperator>(statement))
            visit_unary(unary);
        else if (auto *choice = dyn_cast<SwitchStmt>(statement))
            visit_switch(choice);
        else if (auto *member = dyn_cast<MemberExpr>(statement))
            visit_member(member);
        else if (auto *cast = dyn_cast<CStyleCastExpr>(statement))
            visit_cast(cast);
        else if (auto *end = dyn_cast<ReturnStmt>(statement))
            visit_return(end);
        else if (auto *call = dyn_cast<CallExpr>(statement))
            visit_call(call);
    }

    void visit_function(FunctionDecl *function) {
        std::string name = function->getName().str();
        for (const auto *note : function->specific_attrs<AnnotateAttr>())
            if (note->getAnnotation().starts_with("stingy:") && !note->isInherited())
                facts.function_notes[name].push_back(
                    {note->getAnnotation().drop_front(7).str(), place(function->getLocation())});
        if (function->doesThisDeclarationHaveABody())
            facts.signatures[name].insert(signature(function->getType()));
        for (unsigned i = 0; i < function->getNumParams(); i++)
            if (function->getParamDecl(i)->getType()->isVoidPointerType())
                facts.void_parameters[name].insert(std::to_string(i));
    }

    void visit_typedef(TypedefDecl *alias) {
        if (const RecordDecl *record = alias->getUnderlyingType()->getAsRecordDecl())
            if (std::string name = name_of(record); !name.empty())
                facts.aliases[alias->getName().str()] = name;
    }

    void visit_record(RecordDecl *record) {
        std::string name = name_of(record);
        if (name.empty() || !record->isCompleteDefinition() || record->isInvalidDecl() ||
            sources.isInSystemHeader(record->getLocation()))
            return;
        if (facts.records.count(name))
            return;
        const ASTRecordLayout &layout = context.getASTRecordLayout(record);
        Record r;
        r.name = name;
        r.place = place(record->getLocation());
        r.bytes = layout.getSize().getQuantity();
        r.align = layout.getAlignment().getQuantity();
        r.is_request = has_note(record, "request");
        r.is_union = record->isUnion();
        add_fields(r, record, "", 0);
        facts.records.emplace(name, std::move(r));
    }

    // Records the state field's values and their names in the source.
    void visit_binary(BinaryOperator *op) {
        if (op->isAssignmentOp())
            mark_write(op->getLHS(), op->isCompoundAssignmentOp());
        if (op->getOpcode() == BO_Assign)
            expect(op->getRHS(), op->getLHS()->getType(), text(op->getLHS()));
        if (op->getOpcode() == BO_Assign || op->isEqualityOp()) {
            name_value(op->getLHS(), op->getRHS());
            name_value(op->getRHS(), op->getLHS());
        }
    }
    void visit_unary(UnaryOperator *op) {
        if (op->isIncrementDecrementOp() || op->getOpcode() == UO_AddrOf)
            mark_write(op->getSubExpr(), true);
    }
    void visit_switch(SwitchStmt *statement) {
        const Expr *condition = statement->getCond()->IgnoreParenImpCasts();
        if (const auto *assign = dyn_cast<BinaryOperator>(condition); assign && assign->isAssignmentOp())
            condition = assign->getRHS()->IgnoreParenImpCasts();
        for (const SwitchCase *label = statement->getSwitchCaseList(); label; label = label->getNextSwitchCase())
            if (const auto *one = dyn_cast<CaseStmt>(label)) {
                name_value(condition, one->getLHS());
                // The enumeration's names are valid for every field of its type.
            }
    }

    void visit_member(MemberExpr *member) {
        const auto *field = dyn_cast<FieldDecl>(member->getMemberDecl());
        if (!field || !current)
            return;
        std::string path = field->getName().str();
        const RecordDecl *record = field->getParent();
        const Expr *base = member->getBase()->IgnoreParenImpCasts();
        // Fields of unnamed structures belong to the enclosing named one.
        while (name_of(record).empty()) {
            const auto *outer = dyn_cast<MemberExpr>(base);
            const auto *outer_field = outer ? dyn_cast<FieldDecl>(outer->getMemberDecl()) : nullptr;
            if (!outer_field)
                return;
            if (!outer_field->getName().empty())
                path = path.empty() ? outer_field->getName().str() : outer_field->getName().str() + "." + path;
            record = outer_field->getParent();
            base = outer->getBase()->IgnoreParenImpCasts();
        }
        if (path.empty() || sources.isInSystemHeader(record->getLocation()))
            return;
        auto mark = marks.find(member);
        bool is_write = mark != marks.end(), is_read = !is_write || mark->second;
        Place at = place(member->getMemberLoc());
        facts.accesses.insert({at.file, current->getName().str(), name_of(record), path, at.line, is_write, is_read});
    }

    void visit_cast(CStyleCastExpr *cast) {
        expect(cast->getSubExpr(), cast->getType(), "");
        // A function that is cast may be called with the type of the cast; a function cast to a plain pointer or a
        // number may be called with any type.
        const Expr *from = cast->getSubExpr()->IgnoreParenImpCasts();
        bool is_named = isa<DeclRefExpr>(from) && isa<FunctionDecl>(llvm::cast<DeclRefExpr>(from)->getDecl());
        if (const auto *address = dyn_cast<UnaryOperator>(from); address && address->getOpcode() == UO_AddrOf)
            if (const auto *name = dyn_cast<DeclRefExpr>(address->getSubExpr()->IgnoreParens());
                name && isa<FunctionDecl>(name->getDecl()))
                from = name, is_named = true;
        QualType type = from->getType();
        if (!type->isFunctionType() && !type->isFunctionPointerType())
            return;
        Signature to =
            cast->getType()->isFunctionPointerType() ? signature(cast->getType()->getPointeeType()) : Signature();
        if (is_named)
            facts.signatures[llvm::cast<FunctionDecl>(llvm::cast<DeclRefExpr>(from)->getDecl())->getName().str()]
                .insert(to);
        else
            facts.casts[signature(type->isFunctionType() ? type : type->getPointeeType())].insert(to);
    }
    void visit_variable(VarDecl *variable) {
        if (variable->hasInit())
            expect(variable->getInit(), variable->getType(), variable->getName().str());
    }
    void visit_return(ReturnStmt *statement) {
        if (current && statement->getRetValue())
            expect(statement->getRetValue(), current->getReturnType(), "");
    }

    void visit_call(CallExpr *call) {
        const FunctionDecl *callee = call->getDirectCallee();
        if (!current)
            return;
        if (!callee) {
            Place at = place(call->getBeginLoc());
            QualType called = call->getCallee()->getType();
            if (const auto *pointer = called->getAs<PointerType>())
                facts.pointer_calls[{at.file, at.line, sources.getExpansionColumnNumber(call->getBeginLoc())}].insert(
                    signature(pointer->getPointeeType()));
            return;
        }
        std::string name = callee->getName().str();
        for (unsigned i = 0; i < call->getNumArgs() && i < callee->getNumParams(); i++)
            if (callee->getParamDecl(i)->getType()->isIntegralOrEnumerationType())
                if (auto [value, written, is_enumerator] = constant(call->getArg(i)); !written.empty())
                    facts.passed[name + ":" + std::to_string(i)].emplace(value, written);
        bool returns_pointer = call->getType()->isPointerType(), takes_pointer = false;
        for (const Expr *argument : call->arguments())
            takes_pointer |= argument->getType()->isPointerType();
        if (!returns_pointer && !takes_pointer)
            return;
        WrittenCall written;
        written.callee = name;
        written.function = current->getName().str();
        for (const Expr *argument : call->arguments())
            written.arguments.push_back(text(argument));
        QualType type;
        if (returns_pointer) {
            type = call->getType();
            if (auto known = expected.find(call); known != expected.end()) {
                written.left = known->second.second;
                if (!known->second.first.isNull())
                    type = known->second.first;
            }
        } else {
            for (const Expr *argument : call->arguments())
                if (argument->IgnoreParenCasts()->getType()->isPointerType()) {
                    type = argument->IgnoreParenCasts()->getType();
                    break;
                }
        }
        if (!type.isNull() && type->isPointerType() && !type->isVoidPointerType()) {
            QualType pointee = type->getPointeeType().getUnqualifiedType();
            PrintingPolicy policy(context.getLangOpts());
            written.type = pointee.getAsString(policy);
            written.record = name_of(pointee->getAsRecordDecl());
            if (!pointee->isIncompleteType() && !pointee->isFunctionType())
                written.align = context.getTypeAlignInChars(pointee).getQuantity();
        }
        for (const Expr *argument : call->arguments()) {
            const Expr *plain = argument->IgnoreParenCasts();
            QualType to = plain->getType()->isPointerType() ? plain->getType()->getPointeeType() : QualType();
            if (to.isNull() || !to->isPointerType())
                continue;
            QualType block = to->getPointeeType().getUnqualifiedType();
            written.stored_left = StringRef(text(plain)).ltrim("& (").str();
            if (!block->isVoidType()) {
                written.stored_type = block.getAsString(PrintingPolicy(context.getLangOpts()));
                written.stored_record = name_of(block->getAsRecordDecl());
            }
            break;
        }
        SourceLocation begin = call->getBeginLoc();
        written.is_macro = begin.isMacroID();
        Place at = place(begin);
        written.column = sources.getExpansionColumnNumber(begin);
        facts.calls.emplace(std::make_pair(at.file, at.line), std::move(written));
    }

    std::string word(QualType type) {
        type = type.getCanonicalType().getUnqualifiedType();
        if (type->isVoidType())
            return "void";
        if (const auto *pointer = type->getAs<PointerType>()) {
            QualType to = pointer->getPointeeType().getCanonicalType().getUnqualifiedType();
            if (to->isVoidType())
                return "*";
            if (to->isPointerType())
                return "**";
            if (to->isFunctionType())
                return "*()";
            if (const RecordDecl *record = to->getAsRecordDecl())
                return name_of(record).empty() ? "*" : "*" + name_of(record);
            if (to->isIntegralOrEnumerationType() && !to->isIncompleteType())
                return "*int" + std::to_string(context.getTypeSize(to));
            return "*";
        }
        if (type->isIntegralOrEnumerationType() && !type->isIncompleteType())
            return "int" + std::to_string(context.getTypeSize(type));
        if (const RecordDecl *record = type->getAsRecordDecl())
            return name_of(record);
        return type.getAsString(PrintingPolicy(context.getLangOpts()));
    }

    Signature signature(QualType type) {
        Signature words{"void"};
        if (const auto *function = type->getAs<FunctionType>())
            words[0] = word(function->getReturnType());
        const auto *prototype = type->getAs<FunctionProtoType>();
        if (prototype)
            for (QualType parameter : prototype->param_types())
                words.push_back(word(parameter));
        if (!prototype || prototype->isVariadic())
            words.push_back("...");
        return words;
    }

    static bool has_note(const Decl *decl, StringRef wanted) {
        for (const auto *note : decl->specific_attrs<AnnotateAttr>())
            if (note->getAnnotation() == ("stingy:" + wanted).str())
                return true;
        return false;
    }

    Place place(SourceLocation where) {
        PresumedLoc at = sources.getPresumedLoc(sources.getExpansionLoc(where));
        if (at.isInvalid())
            return {};
        auto [known, is_new] = files.try_emplace(at.getFilename());
        if (is_new)
            known->second = absolute_path(directory, at.getFilename());
        return {known->second, at.getLine()};
    }

    std::string text(const Expr *expression) {
        CharSourceRange range = sources.getExpansionRange(expression->getSourceRange());
        return Lexer::getSourceText(range, sources, context.getLangOpts()).str();
    }

    void add_fields(Record &into, const RecordDecl *record, const std::string &prefix, uint64_t base_bits) {
        const ASTRecordLayout &layout = context.getASTRecordLayout(record);
        for (const FieldDecl *decl : record->fields()) {
            uint64_t bits = base_bits + layout.getFieldOffset(decl->getFieldIndex());
            const RecordDecl *inner = decl->getType()->getAsRecordDecl();
            if (inner && name_of(inner).empty() && !inner->isUnion()) {
                add_fields(into, inner, decl->getName().empty() ? prefix : prefix + decl->getName().str() + ".", bits);
                continue;
            }
            if (decl->getName().empty() && !inner)
                continue; // padding written as a bit field
            Field f;
            f.name = prefix + (decl->getName().empty() ? "(union)" : decl->getName().str());
            f.type = decl->getType().getAsString(PrintingPolicy(context.getLangOpts()));
            if (f.type.find("(unnamed") != std::string::npos || f.type.find("(anonymous") != std::string::npos)
                f.type = inner && inner->isUnion() ? "union" : "struct";
            f.is_bits = decl->isBitField();
            f.offset = bits / 8;
            f.align = context.getTypeAlignInChars(decl->getType()).getQuantity();
            f.bytes = f.is_bits ? (bits % 8 + decl->getBitWidthValue(context) + 7) / 8
                                : context.getTypeSizeInChars(decl->getType()).getQuantity();
            f.is_array = decl->getType()->isArrayType();
            f.is_pointer = decl->getType()->isPointerType();
            f.is_function = decl->getType()->isFunctionPointerType();
            if (f.is_function)
                f.signature = signature(decl->getType()->getPointeeType());
            f.is_enum = decl->getType()->isEnumeralType();
            f.record = name_of(inner);
            f.is_cold = has_note(decl, "cold");
            f.is_state = has_note(decl, "state");
            into.fields.push_back(f);
            if (const auto *enumeration = decl->getType()->getAs<EnumType>())
                for (const EnumConstantDecl *one : enumeration->getDecl()->enumerators())
                    if (one->getInitVal().isRepresentableByInt64())
                        facts.values[into.name + "." + f.name].emplace(one->getInitVal().getExtValue(),
                                                                       std::make_pair(one->getName().str(), true));
        }
    }

    /// Records how a call's result is used.
    void expect(const Expr *value, QualType type, const std::string &left) {
        const Expr *plain = value->IgnoreParenCasts();
        if (const auto *call = dyn_cast<CallExpr>(plain)) {
            auto &[known_type, known_left] = expected[call];
            if (known_type.isNull() || known_type->isVoidPointerType())
                known_type = type;
            if (!left.empty())
                known_left = left;
        }
    }

    void mark_write(const Expr *target, bool is_read) {
        target = target->IgnoreParenCasts();
        while (true) {
            if (const auto *index = dyn_cast<ArraySubscriptExpr>(target)) {
                const Expr *base = index->getBase()->IgnoreParenCasts();
                if (!base->getType()->isArrayType())
                    return; // through a pointer: the field is read
                target = base;
            } else if (const auto *member = dyn_cast<MemberExpr>(target)) {
                marks.try_emplace(member, is_read);
                if (member->isArrow())
                    return;
                target = member->getBase()->IgnoreParenCasts();
            } else
                return;
        }
    }

    /// Returns the value of a constant, its name in the source, and whether the name is an enumerator.
    std::tuple<int64_t, std::string, bool> constant(const Expr *value) {
        value = value->IgnoreParens();
        Expr::EvalResult result;
        if (value->isValueDependent() || !value->getType()->isIntegralOrEnumerationType() ||
            !value->EvaluateAsInt(result, context))
            return {0, "", false};
        if (!result.Val.getInt().isRepresentableByInt64())
            return {0, "", false};
        int64_t number = result.Val.getInt().getExtValue();
        const Expr *plain = value->IgnoreParenCasts();
        if (const auto *constant = dyn_cast<ConstantExpr>(plain))
            plain = constant->getSubExpr()->IgnoreParenCasts();
        if (const auto *name = dyn_cast<DeclRefExpr>(plain))
            return {number, name->getDecl()->getName().str(), isa<EnumConstantDecl>(name->getDecl())};
        // Finds the macro that gives the whole value: for `#define CLOSED (CLOSED_UP | CLOSED_DOWN)`, CLOSED. A
        // macro's arguments are written outside of it.
        SourceLocation begin = value->getBeginLoc(), end = value->getEndLoc();
        auto written = [&](SourceLocation at) {
            while (sources.isMacroArgExpansion(at))
                at = sources.getImmediateSpellingLoc(at);
            return at;
        };
        for (begin = written(begin), end = written(end); begin.isMacroID() || end.isMacroID();) {
            if (begin.isMacroID() && end.isMacroID() && sources.getFileID(begin) == sources.getFileID(end)) {
                std::string name = Lexer::getImmediateMacroName(begin, sources, context.getLangOpts()).str();
                if (!name.empty() && (isalpha(name[0]) || name[0] == '_'))
                    return {number, name, false};
                break;
            }
            // Leaves the inner one of the two macros.
            if (begin.isMacroID())
                begin = written(sources.getImmediateExpansionRange(begin).getBegin());
            if (end.isMacroID())
                end = written(sources.getImmediateExpansionRange(end).getEnd());
        }
        return {number, "", false};
    }

    void name_value(const Expr *maybe_field, const Expr *maybe_constant) {
        const auto *member = dyn_cast<MemberExpr>(maybe_field->IgnoreParenImpCasts());
        const auto *field = member ? dyn_cast<FieldDecl>(member->getMemberDecl()) : nullptr;
        if (!field)
            return;
        auto [value, name, is_enumerator] = constant(maybe_constant);
        if (name.empty())
            return;
        std::string record = name_of(field->getParent());
        if (!record.empty())
            facts.values[record + "." + field->getName().str()].emplace(value, std::make_pair(name, is_enumerator));
    }

    ASTContext &context;
    SourceManager &sources;
    const std::string &directory;
    Facts &facts;
    const FunctionDecl *current = nullptr;
    std::vector<const FunctionDecl *> outer; ///< of a function that is declared in another
    std::map<std::string, std::string> files;
    llvm::DenseMap<const MemberExpr *, bool> marks;
    llvm::DenseMap<const CallExpr *, std::pair<QualType, std::string>> expected;
};

class FactConsumer : public ASTConsumer {
  public:
    FactConsumer(const std::string &directory, Facts &facts) : directory(directory), facts(facts) {}
    void HandleTranslationUnit(ASTContext &context) override {
        if (context.getDiagnostics().hasErrorOccurred())
            return;
        FactWalk facts_of(context, directory, facts);
        SourceManager &sources = context.getSourceManager();
        for (Decl *decl : context.getTranslationUnitDecl()->decls())
            if (!sources.isInSystemHeader(decl->getLocation()))
                facts_of.walk(decl);
    }

  private:
    std::string directory;
    Facts &facts;
};

} // namespace

std::unique_ptr<ASTConsumer> make_fact_consumer(CompilerInstance &, const std::string &directory, Facts &facts) {
    return std::make_unique<FactConsumer>(directory, facts);
}

} // namespace stingy
