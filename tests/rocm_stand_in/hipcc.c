// A stand-in for hipcc: records its arguments, and gives any source the object made before for the targets asked for.
// A program without an interpreter or a child, because tests start it thousands of times.
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ARCHS = 256, LINE = 1 << 17 };

static char here[PATH_MAX];

static const char *after(const char *word, const char *prefix)
{
    return strncmp(word, prefix, strlen(prefix)) ? NULL : word + strlen(prefix);
}

static bool ends_with(const char *word, const char *end)
{
    return strlen(word) >= strlen(end) && !strcmp(word + strlen(word) - strlen(end), end);
}

static bool has(char **words, const char *wanted)
{
    while (*words && strcmp(*words, wanted))
        words++;
    return *words;
}

// asked whether it can make code for an arch, or how it bundles the code of several
static int show_bundler(char **words)
{
    char targets[LINE] = "host-x86_64-unknown-linux-gnu", inputs[LINE] = "\"-input=/dev/null\"";
    for (const char *arch; *words; words++)
        if ((arch = after(*words, "--offload-arch="))) {
            strcat(strcat(targets, ",hipv4-amdgcn-amd-amdhsa--"), arch);
            strcat(strcat(strcat(inputs, " \"-input=/tmp/x-"), arch), "\"");
        }
    fprintf(stderr,
            " \"%s/clang-offload-bundler\" \"-type=o\" \"-bundle-align=4096\" \"-targets=%s\" %s "
            "\"-output=/tmp/x.hipfb\"\n",
            here, targets, inputs);
    return 0;
}

static void log_command(char **words)
{
    char path[PATH_MAX + 16], line[LINE] = "";
    for (char *end = line; *words; words++)
        end += snprintf(end, line + LINE - end, "%s%c", *words, words[1] ? ' ' : '\n');
    snprintf(path, sizeof path, "%s/../hipcc.log", here);
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (log < 0 || write(log, line, strlen(line)) < 0) // one write: several of these run at once
        exit(1);
}

static int copy(const char *from, const char *to)
{
    struct stat info;
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (in < 0 || out < 0 || fstat(in, &info))
        return perror(from), 1;
    for (off_t done = 0; done < info.st_size;)
        if (sendfile(out, in, &done, info.st_size - done) <= 0)
            return perror(to), 1;
    return 0;
}

static int compile(char **words)
{
    const char *kind = "kernel", *host = "-host", *header = NULL, *output = NULL, *arch;
    char archs[ARCHS] = "", object[2 * PATH_MAX];
    for (; *words; words++) {
        if (ends_with(*words, "/flash_api.hip"))
            kind = "binding";
        else if (ends_with(*words, "_api.hip"))
            kind = "api";
        else if ((arch = after(*words, "--offload-arch=")))
            strcat(strcat(archs, *archs ? "-" : ""), arch);
        else if (!strcmp(*words, "--cuda-device-only"))
            host = "";
        else if (!strcmp(*words, "--cuda-host-only"))
            host = "host";
        else if (!strcmp(*words, "-emit-pch"))
            kind = "header";
        else if (!strcmp(*words, "-include-pch"))
            header = words[2]; // -Xclang is between
        else if (!strcmp(*words, "-o"))
            output = strcmp(words[1], "-Xclang") ? words[1] : words[2];
    }
    if (header && access(header, R_OK))
        return fprintf(stderr, "error: no such file: %s\n", header), 1;
    if (!strcmp(kind, "header"))
        return close(open(output, O_WRONLY | O_CREAT, 0666));
    // host code is the same for all archs
    snprintf(object, sizeof object, "%s/../objects/%s%s/%s.o", here, strcmp(host, "host") ? archs : "", host, kind);
    return copy(object, output);
}

int main(int count, char **words)
{
    if (readlink("/proc/self/exe", here, sizeof here - 1) < 0)
        return 1;
    dirname(here);
    words++;
    if (count == 2 && !strcmp(*words, "--version"))
        return puts("HIP version: 7.2.53211-0000000"), 0;
    if (has(words, "-###"))
        return show_bundler(words);
    if (has(words, "-dM")) // asked which libraries it uses
        return 0;
    log_command(words);
    return compile(words);
}
