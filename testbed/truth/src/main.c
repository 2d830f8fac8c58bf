/* A server of known truth; see README.md. */
#include "truth.h"

static void print(const char *name, double value, const char *end) {
    printf("    \"%s\": ", name);
    if (value > 0)
        printf("%.10g%s\n", value, end);
    else
        printf("null%s\n", end);
}

int main(int count, char **words) {
    struct options options = options_read(count, words);
    if (!options.is_truth) {
        serve(&options);
        return 0;
    }
    struct truth truth = solve(&options.of);
    printf("{\n  \"kind\": \"%s\",\n  \"parameters\": ", KIND_NAMES[options.of.kind]);
    parameters_print(stdout, &options.of);
    printf(",\n  \"connections\": {\n");
    print("knee", truth.knee, ",");
    print("yield", truth.yield, ",");
    print("peak", truth.peak_load, ",");
    print("peak_per_sec", truth.peak_per_sec, ",");
    print("failure", truth.failure, ",");
    print("overload", truth.overload, ",");
    print("recovery", truth.recovery, "");
    printf("  },\n  \"rate\": {\n");
    print("capacity", truth.capacity_per_sec, ",");
    print("yield", truth.yield_per_sec, ",");
    print("failure", truth.failure_per_sec, "");
    printf("  }\n}\n");
    return 0;
}
