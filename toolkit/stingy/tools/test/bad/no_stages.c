/* A program without stages. */
int main(void) { return 0; }
