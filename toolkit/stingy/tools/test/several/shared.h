char *copy_line(const char *line);
void free_line(char *line);
