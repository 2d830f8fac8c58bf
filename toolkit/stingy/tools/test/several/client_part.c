int only_clients_need_this(void) {
    return 0;
}
