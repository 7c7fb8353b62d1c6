/* Noise in place of the arbiter and of the configuration: `fuzz FOLDER N`.
 *
 * The client's own source is part of this file, so that sanitizers see all of it and each turn can
 * start anew. A thread accepts connections and answers with half-right WELCOMEs: any kind, slot
 * and length, none to two descriptors of any size. Exit status 0: all turns done, nothing leaked.
 */
#include "client.c"

#include <dirent.h>

static const char *folder;
static int listening;
static _Atomic uint64_t random_state = 88172645463325252u;

const char *driver_home(void) { return folder; }
static uint64_t service(void) { return 1000000; }
static void forget(void) {}

__attribute__((constructor)) static void register_hooks(void)
{
    client_set_hooks((struct client_hooks){service, forget, forget});
}

static uint64_t roll(uint64_t n)
{
    uint64_t x = random_state;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    random_state = x;
    return (x >> 11) % n;
}

/* A file of the right size or of some other, that begins as a table or grants page does or not. */
static int some_file(size_t right)
{
    static const size_t sizes[] = {0, 16, 4096, sizeof(struct ballast_grants),
                                   sizeof(struct ballast_table)};
    uint32_t magic = roll(4) ? BALLAST_MAGIC : (uint32_t)roll(UINT32_MAX);
    int file = memfd_create("noise", MFD_CLOEXEC);
    size_t size = roll(4) ? right : sizes[roll(5)];
    if (ftruncate(file, (off_t)size) == 0 && roll(8))
        (void)!pwrite(file, &magic, sizeof magic, 0);
    return file;
}

static void answer(int to)
{
    struct ballast_message message = {.kind = roll(4) ? BALLAST_WELCOME : (uint8_t)roll(256),
                                      .card = (uint8_t)roll(256),
                                      .value = (uint32_t)roll(roll(2) ? 2100 : UINT32_MAX)};
    int files[2] = {some_file(sizeof(struct ballast_table)),
                    some_file(sizeof(struct ballast_grants))};
    int n = roll(4) ? 2 : (int)roll(3), brought[2] = {-1, -1};
    struct ballast_message hello;
    /* Unread, it would turn our answer into an error on the other side. */
    exchange(to, &hello, brought, 2, false);
    if (roll(4))
        exchange(to, &message, files, n, true);
    else if (roll(2))
        send(to, &message, roll(sizeof message), MSG_NOSIGNAL);
    for (int i = 0; i < 2; i++) {
        close(files[i]);
        if (brought[i] >= 0)
            close(brought[i]);
    }
}

static void *arbiter(void *nothing)
{
    for (;;) {
        int to = accept(listening, NULL, NULL);
        if (to < 0)
            return nothing;
        answer(to);
        close(to);
    }
}

static void write_configuration(void)
{
    static const char *const lines[] = {"card GPU-1 64\n", "card\n", "card GPU 99999999999999999999\n",
                                        "card  \n\n", "\n", "note GPU-1 3\n"};
    char path[4200], text[6000];
    size_t n = 0;
    for (uint64_t left = roll(40); left; left--) {
        const char *line = lines[roll(6)];
        memcpy(text + n, line, strlen(line));
        n += strlen(line);
    }
    for (uint64_t left = n ? roll(4) : 0; left; left--)
        text[roll(n)] = (char)roll(256);
    while (!roll(3) && n < sizeof text)
        text[n++] = 'x';
    snprintf(path, sizeof path, "%s/gpu.conf", folder);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    (void)!write(file, text, n);
    close(file);
}

static int count_files(void)
{
    int n = 0;
    DIR *open_files = opendir("/proc/self/fd");
    while (readdir(open_files))
        n++;
    closedir(open_files);
    return n;
}

/* As after a fork, with the pages of this turn given back. */
static void start_anew(struct ballast_table *own)
{
    if (client.table != own)
        munmap(client.table, sizeof *client.table);
    if (client.grants)
        munmap(client.grants, sizeof *client.grants);
    munmap(own, sizeof *own);
    in_child();
}

int main(int n_arguments, char **arguments)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    pthread_t thread;
    if (n_arguments != 3)
        return 2;
    folder = arguments[1];
    snprintf(address.sun_path, sizeof address.sun_path, "%s/run/arbiter.sock", folder);
    listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 16))
        return 2;
    int n_files = count_files(), n_taken = 0;
    pthread_create(&thread, NULL, arbiter, NULL);
    for (long left = atol(arguments[2]); left; left--) {
        struct ballast_table *own = client.table = private_table();
        if (left % 16 == 0)
            write_configuration();
        read_configuration(own);
        client.charged[0] = roll(1 << 20);
        for (int again = 0; again < 2; again++) {
            struct ballast_table *table = client.table;
            struct ballast_grants *grants = client.grants;
            bool is_taken = connect_arbiter();
            /* The client keeps the pages before, for a thread may be reading them. */
            if (is_taken && table != own)
                munmap(table, sizeof *table);
            if (is_taken && grants)
                munmap(grants, sizeof *grants);
            n_taken += is_taken;
            /* As the helper thread does when the arbiter has hung up. */
            set_line(-1);
        }
        start_anew(own);
    }
    shutdown(listening, SHUT_RDWR);
    pthread_join(thread, NULL);
    printf("taken %d, files left open %d\n", n_taken, count_files() - n_files);
    return !n_taken || count_files() - n_files > 0;
}
