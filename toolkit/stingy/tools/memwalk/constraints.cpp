// The constraints of each instruction, and of initialisers.
#include "memwalk/pointers.h"
#include "pch.h"

using namespace llvm;

namespace stingy {
/// Functions of the C library that return a pointer into one of their arguments, with the argument's index.
int returned_argument(StringRef name) {
    static const char *const first[] = {
        "strchr",    "strrchr", "strstr",  "strcasestr", "strpbrk",    "strtok",        "strtok_r", "strsep", "memchr",
        "memrchr",   "memcpy",  "memmove", "mempcpy",    "memset",     "strcpy",        "strncpy",  "strcat", "strncat",
        "stpcpy",    "stpncpy", "index",   "rindex",     "basename",   "dirname",       "fgets",    "getcwd", "getwd",
        "strchrnul", "memmem",  "gets",    "rawmemchr",  "strerror_r", "__xpg_basename"};
    if (is_contained(first, name))
        return 0;
    return name == "realpath" ? 1 : name == "inet_ntop" ? 2 : -1;
}

/// Whether a function of the C library keeps none of its arguments.
bool keeps_nothing(StringRef name) {
    static const char *const names[] = {"strlen",
                                        "strnlen",
                                        "strcmp",
                                        "strncmp",
                                        "strcasecmp",
                                        "strncasecmp",
                                        "memcmp",
                                        "strspn",
                                        "strcspn",
                                        "strcoll",
                                        "strtol",
                                        "strtoul",
                                        "strtoll",
                                        "strtoull",
                                        "strtod",
                                        "atoi",
                                        "atol",
                                        "atoll",
                                        "atof",
                                        "printf",
                                        "fprintf",
                                        "sprintf",
                                        "snprintf",
                                        "vsnprintf",
                                        "vfprintf",
                                        "vsprintf",
                                        "dprintf",
                                        "puts",
                                        "fputs",
                                        "fputc",
                                        "fwrite",
                                        "fread",
                                        "fopen",
                                        "read",
                                        "write",
                                        "pread",
                                        "pwrite",
                                        "readv",
                                        "writev",
                                        "recv",
                                        "send",
                                        "recvfrom",
                                        "sendto",
                                        "recvmsg",
                                        "sendmsg",
                                        "open",
                                        "stat",
                                        "lstat",
                                        "fstat",
                                        "access",
                                        "unlink",
                                        "rename",
                                        "mkdir",
                                        "rmdir",
                                        "opendir",
                                        "bind",
                                        "connect",
                                        "accept",
                                        "accept4",
                                        "getsockname",
                                        "getpeername",
                                        "getsockopt",
                                        "setsockopt",
                                        "inet_pton",
                                        "inet_addr",
                                        "getenv",
                                        "time",
                                        "gettimeofday",
                                        "clock_gettime",
                                        "gmtime_r",
                                        "localtime_r",
                                        "strftime",
                                        "mktime",
                                        "poll",
                                        "select",
                                        "syslog",
                                        "perror",
                                        "qsort",
                                        "bsearch",
                                        "sscanf",
                                        "free",
                                        "htons",
                                        "bzero",
                                        "strdup",
                                        "strndup",
                                        "vprintf",
                                        "vdprintf",
                                        "vsyslog",
                                        "vasprintf",
                                        "asprintf",
                                        "openat",
                                        "fstatat",
                                        "faccessat",
                                        "unlinkat",
                                        "renameat",
                                        "mkdirat",
                                        "readlink",
                                        "symlink",
                                        "link",
                                        "chdir",
                                        "chroot",
                                        "chmod",
                                        "chown",
                                        "lchown",
                                        "truncate",
                                        "utime",
                                        "utimes",
                                        "statfs",
                                        "statvfs",
                                        "fopen64",
                                        "open64",
                                        "stat64",
                                        "lstat64",
                                        "pread64",
                                        "pwrite64",
                                        "sendfile",
                                        "freopen",
                                        "popen",
                                        "system",
                                        "putc",
                                        "fgetc",
                                        "getc",
                                        "fscanf",
                                        "fseek",
                                        "ftell",
                                        "fflush",
                                        "fclose",
                                        "pclose",
                                        "ungetc",
                                        "getline",
                                        "getdelim",
                                        "fnmatch",
                                        "regexec",
                                        "strverscmp",
                                        "memccpy",
                                        "strxfrm",
                                        "strlcpy",
                                        "strlcat",
                                        "strtoimax",
                                        "strtoumax",
                                        "strtold",
                                        "strtof",
                                        "strptime",
                                        "inet_aton",
                                        "inet_network",
                                        "gethostname",
                                        "getaddrinfo",
                                        "freeaddrinfo",
                                        "getnameinfo",
                                        "gethostbyname",
                                        "getservbyname",
                                        "getpwnam",
                                        "getgrnam",
                                        "crypt",
                                        "setenv",
                                        "unsetenv",
                                        "execve",
                                        "execv",
                                        "execvp",
                                        "execl",
                                        "execlp",
                                        "mmap",
                                        "munmap",
                                        "msync",
                                        "madvise",
                                        "nanosleep",
                                        "ppoll",
                                        "pselect",
                                        "epoll_wait",
                                        "gmtime",
                                        "localtime",
                                        "ctime_r",
                                        "asctime_r",
                                        "difftime",
                                        "strsignal",
                                        "memset_explicit",
                                        "explicit_bzero",
                                        "bcopy",
                                        "bcmp",
                                        "getrandom",
                                        "random_r",
                                        "__errno_location",
                                        "isatty",
                                        "ttyname",
                                        "getxattr",
                                        "dlopen",
                                        "dlsym",
                                        "strerror",
                                        "__isoc99_sscanf",
                                        "__isoc99_fscanf",
                                        "__isoc23_sscanf",
                                        "__isoc23_strtol",
                                        "__isoc23_strtoul",
                                        "__isoc23_strtoll",
                                        "__isoc23_strtoull",
                                        "abort",
                                        "exit",
                                        "_exit",
                                        "__assert_fail",
                                        "getopt",
                                        "getopt_long"};
    return is_contained(names, name) || returned_argument(name) >= 0;
}

void Pointers::add_initializer(const Constant *value, const Type *type, unsigned into, const Cell *within) {
    if (const auto *aggregate = dyn_cast<ConstantAggregate>(value)) {
        const auto *record = dyn_cast<StructType>(aggregate->getType());
        for (unsigned i = 0; i < aggregate->getNumOperands(); i++) {
            const Constant *element = aggregate->getOperand(i);
            if (!record) {
                add_initializer(element, element->getType(), into, within);
                continue;
            }
            std::string name = plain_name(*record);
            uint64_t offset =
                module.getDataLayout().getStructLayout(const_cast<StructType *>(record))->getElementOffset(i);
            Cell cell = name.empty() ? Cell{within              ? within->record
                                            : record->hasName() ? record->getName().str()
                                                                : "(unnamed)",
                                            (within ? within->offset : 0) + offset}
                                     : Cell{name, offset};
            add_initializer(element, element->getType(), content(cell_target(cell)), &cell);
        }
    } else if (value->getType()->isPointerTy() && !value->isNullValue())
        add_copy(node_of(value), into);
}

/// Whether a value of the type can hold pointers; integers can, if they are wide enough.
static bool may_hold_pointers(const Type *type) {
    if (const auto *integer = dyn_cast<IntegerType>(type))
        return integer->getBitWidth() >= 64;
    return type->isPointerTy() || type->isVectorTy() ||
           (type->isAggregateType() && any_of(type->subtypes(), may_hold_pointers));
}

/// The contents of everything that a value of the type covers in a local variable or a global; none if the address is
/// another one. Without a type: the whole variable.
std::vector<unsigned> Pointers::contents_at(Value *address, Type *type) {
    std::vector<unsigned> all;
    const DataLayout &layout = module.getDataLayout();
    while (!type && isa<GEPOperator>(address))
        address = cast<GEPOperator>(address)->getPointerOperand();
    auto *local = dyn_cast<AllocaInst>(address);
    auto *global = dyn_cast<GlobalVariable>(address);
    if (!local && !global)
        return all;
    Type *declared = local ? local->getAllocatedType() : global->getValueType();
    uint64_t bytes = layout.getTypeStoreSize(type ? type : declared);
    unsigned whole = target({local ? Target::local : Target::global, address, {}}, address);
    for (uint64_t offset = 0; offset < bytes; offset += layout.getPointerSize()) {
        Cell cell;
        all.push_back(content(cell_at(declared, offset, layout, cell) ? cell_target(cell) : whole));
    }
    return all;
}

/// Adds a load into a node or a store from it.
void Pointers::add_access(Value *address, Type *type, unsigned node, bool is_store) {
    if (!node)
        return;
    if (type->isAggregateType())
        for (unsigned inside : contents_at(address, type))
            is_store ? add_copy(node, inside) : add_copy(inside, node);
    Node &through = graph[node_of(address)];
    (is_store ? through.stores : through.loads).push_back(node);
}

/// One node for all variable arguments of functions.
unsigned Pointers::variable_arguments() {
    static const char key = 0;
    return target({Target::local, nullptr, {}}, &key);
}

void Pointers::add_constraints() {
    for (GlobalVariable &global : module.globals())
        if (global.hasInitializer()) {
            unsigned into = content(target({Target::global, &global, {}}, &global));
            // A constant structure written with another layout (a union's member) has no name, so its fields are
            // those of the type.
            Cell first;
            descend(global.getValueType(), 0, module.getDataLayout(), first);
            add_initializer(global.getInitializer(), global.getValueType(), into,
                            first.record.empty() ? nullptr : &first);
        }
    for (Function &function : module) {
        if (function.isDeclaration())
            continue;
        for (Instruction &instruction : instructions(function)) {
            Type *type = instruction.getType();
            if (auto *load = dyn_cast<LoadInst>(&instruction)) {
                if (may_hold_pointers(type))
                    add_access(load->getPointerOperand(), type, node_of(load), false);
            } else if (auto *store = dyn_cast<StoreInst>(&instruction)) {
                if (may_hold_pointers(store->getValueOperand()->getType()))
                    add_access(store->getPointerOperand(), store->getValueOperand()->getType(),
                               node_of(store->getValueOperand()), true);
            } else if (auto *change = dyn_cast<AtomicRMWInst>(&instruction)) {
                if (may_hold_pointers(type))
                    add_access(change->getPointerOperand(), type, node_of(change->getValOperand()), true),
                        add_access(change->getPointerOperand(), type, node_of(change), false);
            } else if (auto *exchange = dyn_cast<AtomicCmpXchgInst>(&instruction)) {
                type = exchange->getNewValOperand()->getType();
                if (may_hold_pointers(type))
                    add_access(exchange->getPointerOperand(), type, node_of(exchange->getNewValOperand()), true),
                        add_access(exchange->getPointerOperand(), type, node_of(exchange), false);
            } else if (auto *phi = dyn_cast<PHINode>(&instruction)) {
                if (may_hold_pointers(type))
                    for (Value *value : phi->incoming_values())
                        add_copy(node_of(value), node_of(phi));
            } else if (auto *select = dyn_cast<SelectInst>(&instruction)) {
                if (may_hold_pointers(type))
                    add_copy(node_of(select->getTrueValue()), node_of(select)),
                        add_copy(node_of(select->getFalseValue()), node_of(select));
            } else if (isa<ExtractValueInst>(instruction) || isa<InsertValueInst>(instruction)) {
                // The values in it are joined.
                if (may_hold_pointers(type))
                    for (Value *value : instruction.operands())
                        add_copy(node_of(value), node_of(&instruction));
            } else if (isa<PtrToIntInst>(instruction) || isa<IntToPtrInst>(instruction) ||
                       isa<FreezeInst>(instruction) || isa<BitCastInst>(instruction)) {
                add_copy(node_of(instruction.getOperand(0)), node_of(&instruction));
                if (isa<IntToPtrInst>(instruction) && !isa<PtrToIntInst>(instruction.getOperand(0)) &&
                    !isa<Constant>(instruction.getOperand(0)))
                    for (const User *user : instruction.users())
                        if (const auto *call = dyn_cast<CallBase>(user);
                            call && call->getCalledOperand() == &instruction)
                            doubts.push_back({"pointer_from_integer", &instruction,
                                              "a function is called whose address was made from an integer",
                                              "keep function pointers in pointers"});
            } else if (auto *binary = dyn_cast<BinaryOperator>(&instruction)) {
                // Pointer arithmetic on integers, and tag bits. The difference of two pointers is no pointer.
                bool is_distance = binary->getOpcode() == Instruction::Sub &&
                                   isa<PtrToIntInst>(binary->getOperand(0)) && isa<PtrToIntInst>(binary->getOperand(1));
                if (binary->getType()->isIntegerTy(64) && !is_distance)
                    add_copy(node_of(binary->getOperand(0)), node_of(binary)),
                        add_copy(node_of(binary->getOperand(1)), node_of(binary));
            } else if (auto *ret = dyn_cast<ReturnInst>(&instruction)) {
                if (ret->getReturnValue() && may_hold_pointers(ret->getReturnValue()->getType())) {
                    auto [found, is_new] = returns.try_emplace(&function, 0);
                    if (is_new)
                        found->second = new_node();
                    unsigned into = found->second;
                    add_copy(node_of(ret->getReturnValue()), into);
                }
            } else if (auto *call = dyn_cast<CallBase>(&instruction))
                add_call(*call);
            else if (auto *gep = dyn_cast<GetElementPtrInst>(&instruction))
                node_of(gep);
        }
    }
}

void Pointers::add_call(CallBase &call) {
    if (call.isInlineAsm() || isa<DbgInfoIntrinsic>(call))
        return;
    auto *callee = dyn_cast<Function>(call.getCalledOperand()->stripPointerCasts());
    if (!callee) {
        indirect.push_back(&call);
        resolved.try_emplace(&call);
        Place at = place_of(call);
        auto known = facts.pointer_calls.find({at.file, at.line, call.getDebugLoc() ? call.getDebugLoc().getCol() : 0});
        called_as[&call] = known == facts.pointer_calls.end() ? nullptr : &known->second;
        unsigned called = node_of(call.getCalledOperand());
        graph[called].calls.push_back({&call, -1});
        return;
    }
    if (isa<MemTransferInst>(call)) {
        unsigned to = node_of(call.getArgOperand(0)), from = node_of(call.getArgOperand(1));
        graph[from].copies_content_to.push_back(to);
        graph[to].copies_content_from.push_back(from);
        return;
    }
    if (callee->getIntrinsicID() == Intrinsic::vastart)
        for (unsigned node : contents_at(call.getArgOperand(0), nullptr))
            add_target(node, variable_arguments());
    if (callee->isIntrinsic())
        return;
    resolved[&call].push_back(callee);
    if (const Allocator *allocator = allocators.malloc_of(call)) {
        if (allocator->through >= 0) {
            if (unsigned(allocator->through) >= call.arg_size())
                return;
            unsigned block = new_node(), address = node_of(call.getArgOperand(allocator->through));
            add_target(block, target({Target::block, &call, {}}, &call));
            graph[address].stores.push_back(block);
            if (allocator->resizes) {
                unsigned old = new_node();
                graph[address].loads.push_back(old);
                resized_by[&call] = old;
            }
            return;
        }
        add_target(node_of(&call), target({Target::block, &call, {}}, &call));
        if (allocator->pointer >= 0 && unsigned(allocator->pointer) < call.arg_size()) {
            // The new block has the contents of the old one.
            unsigned from = node_of(call.getArgOperand(allocator->pointer));
            add_copy(from, node_of(&call));
        }
        return;
    }
    if (allocators.free_of(*callee))
        return;
    if (!callee->isDeclaration()) {
        link(call, *callee);
        return;
    }
    if (int same = returned_argument(callee->getName());
        call.getType()->isPointerTy() && same >= 0 && unsigned(same) < call.arg_size())
        add_copy(node_of(call.getArgOperand(same)), node_of(&call));
    if (!keeps_nothing(callee->getName()))
        outside.push_back(&call);
    auto range = config.callbacks.equal_range(callee->getName().str());
    bool is_known = range.first != range.second;
    for (auto it = range.first; it != range.second; ++it)
        if (it->second.argument >= 0 && unsigned(it->second.argument) < call.arg_size()) {
            unsigned node = node_of(call.getArgOperand(it->second.argument));
            graph[node].calls.push_back({&call, it->second.argument + (it->second.later ? 64 : 0)});
        }
    if (is_known)
        return;
    for (unsigned i = 0; i < call.arg_size(); i++)
        if (auto *function = dyn_cast<Function>(call.getArgOperand(i)->stripPointerCasts())) {
            link_callback(call, *function, false);
            doubts.push_back({"unknown_callback", &call,
                              function->getName().str() + " is passed to " + callee->getName().str() +
                                  ", which is from outside; taken as called at once",
                              "[[callback]] function = \"" + callee->getName().str() + "\", argument = " +
                                  std::to_string(i) + ", and later = true if the event loop calls it"});
        }
}

void Pointers::link(CallBase &call, Function &callee) {
    for (unsigned i = 0; i < call.arg_size() && i < callee.arg_size(); i++) {
        Value *argument = call.getArgOperand(i);
        if (may_hold_pointers(argument->getType()))
            add_copy(node_of(argument), node_of(callee.getArg(i)));
    }
    if (callee.isVarArg())
        for (unsigned i = callee.arg_size(); i < call.arg_size(); i++)
            add_copy(node_of(call.getArgOperand(i)), content(variable_arguments()));
    if (may_hold_pointers(call.getType())) {
        auto [found, is_new] = returns.try_emplace(&callee, 0);
        if (is_new)
            found->second = new_node();
        add_copy(found->second, node_of(&call));
    }
}

void Pointers::link_callback(CallBase &call, Function &callee, bool is_later) {
    // Code outside may pass on any pointer that it was given.
    for (Argument &parameter : callee.args())
        if (parameter.getType()->isPointerTy())
            for (Value *argument : call.args())
                if (argument->getType()->isPointerTy())
                    add_copy(node_of(argument), node_of(&parameter));
    if (is_later) {
        later.insert(&callee);
        if (const Function *outside = call.getCalledFunction(); outside && outside->getName().contains("thread_create"))
            threads.insert(&callee);
    } else if (auto &found = resolved[&call]; !is_contained(found, &callee))
        found.push_back(&callee);
}

} // namespace stingy
