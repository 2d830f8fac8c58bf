// No code calls it by name: it is loaded at run time.
int plugin_init(void) {
    return 1;
}
