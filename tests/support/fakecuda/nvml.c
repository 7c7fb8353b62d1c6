/* A libnvidia-ml.so.1 for tests: one card, its memory, and who has how much of it. Where there are
 * more ($FAKECUDA_CARDS), all that processes have is shown on the first. */
#include "device.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { NOT_AN_ARGUMENT = 2, UNKNOWN_FIELD = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10 };
enum { WHOLE_MACHINE = 50, MAX_CARDS = 16, GPU_IS_LOST = 15, XID_EVENT = 8, RECOVERY_FIELD = 230 };

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned instance, compute;
};

struct pci {
    char old_id[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char id[32];
};

struct event {
    void *device;
    unsigned long long type, data;
    unsigned instance, compute;
};

struct field {
    unsigned id, scope;
    long long time, took;
    unsigned value_type;
    int status;
    unsigned long long value;
};

static struct fake_card *card_at(unsigned index)
{
    static struct fake_card others[MAX_CARDS];
    if (index >= MAX_CARDS || index >= (unsigned)fake_n_cards())
        return NULL;
    if (!index)
        return fake_card();
    others[index].total_bytes = fake_card()->total_bytes;
    return &others[index];
}

static unsigned index_of(struct fake_card *card)
{
    unsigned index = 0;
    while (card_at(index) != card)
        index++;
    return index;
}

static void uuid_at(unsigned index, char *uuid)
{
    memcpy(uuid, FAKE_UUID, sizeof FAKE_UUID);
    if (index)
        snprintf(uuid + sizeof FAKE_UUID - 3, 3, "%02x", index % MAX_CARDS);
}

int nvmlOnlyTheDriver(void) { return 0; }

static int not_supported(void) { return 3; }

/* nvidia-smi asks for tables of functions that no header names, and ends without them: a size, then
 * functions. None of ours is supported. */
int nvmlInternalGetExportTable(const void **table, const void *id)
{
    static void *functions[256];
    (void)id;
    functions[0] = (void *)sizeof functions;
    for (unsigned i = 1; i < sizeof functions / sizeof *functions; i++)
        functions[i] = (void *)(uintptr_t)not_supported;
    *table = functions;
    return 0;
}

int nvmlInit_v2(void) { return fake_card() ? 0 : 9; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)fake_n_cards(); return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = card_at(index);
    return *device ? 0 : NOT_AN_ARGUMENT;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    char known[sizeof FAKE_UUID];
    for (unsigned index = 0; (*device = card_at(index)); index++) {
        uuid_at(index, known);
        if (!strcmp(uuid, known))
            return 0;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length)
{
    struct fake_card *card = device;
    if (FAKE_IS_LOST(card->health))
        return GPU_IS_LOST;
    if (length < sizeof FAKE_UUID)
        return TOO_SMALL;
    uuid_at(index_of(card), uuid);
    return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length)
{
    (void)device;
    return snprintf(name, length, "Fake GPU") < (int)length ? 0 : TOO_SMALL;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor)
{
    *minor = index_of(device);
    return 0;
}

const char *nvmlErrorString(int status) { return status ? "an error of the tests' driver" : ""; }

/* What NVIDIA's device plugin asks for besides: there is no such device on the machine's bus. */
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci)
{
    memset(pci, 0, sizeof *pci);
    pci->domain = 0xffff;
    pci->bus = index_of(device);
    snprintf(pci->id, sizeof pci->id, "%08X:%02X:00.0", pci->domain, pci->bus);
    return 0;
}

/* No two cards are nearer to each other than the machine makes them. */
int nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, int *level)
{
    (void)one, (void)other;
    *level = WHOLE_MACHINE;
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    (void)device;
    *major = 8, *minor = 0;
    return 0;
}

int nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *types)
{
    (void)device;
    *types = XID_EVENT;
    return 0;
}

int nvmlEventSetCreate(void **set) { *set = fake_card(); return 0; }
int nvmlEventSetFree(void *set) { (void)set; return 0; }

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set)
{
    (void)device, (void)types, (void)set;
    return 0;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned at_most_ms)
{
    struct fake_card *card = set;
    for (unsigned ms = 0; ms <= at_most_ms; ms += 5) {
        uint64_t health = card->health;
        if (FAKE_XID(health)) {
            atomic_fetch_and(&card->health, ~UINT64_C(0xffff));
            *event = (struct event){card, XID_EVENT, FAKE_XID(health), 0, 0};
            return 0;
        }
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    return TIMEOUT;
}

int nvmlDeviceGetFieldValues(void *device, int n, struct field *fields)
{
    struct fake_card *card = device;
    for (int i = 0; i < n; i++) {
        fields[i].status = fields[i].id == RECOVERY_FIELD ? 0 : UNKNOWN_FIELD;
        fields[i].value = FAKE_RECOVERY(card->health);
    }
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    struct fake_card *card = device;
    uint64_t used = card == fake_card() ? fake_used() : 0;
    *memory = (struct memory){card->total_bytes, card->total_bytes - used, used};
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory)
{
    struct memory plain;
    nvmlDeviceGetMemoryInfo(device, &plain);
    *memory = (struct memory_v2){memory->version, plain.total, 0, plain.free, plain.used};
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *found)
{
    struct fake_card *card = device;
    unsigned n = 0, room = *count;
    fake_used();
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++) {
        struct fake_process *process = &card->processes[i];
        unsigned pid = process->pid ? fake_seen_pid(process) : 0;
        if (process->pid && !pid)
            process->pid = process->bytes = 0;
        if (!pid || !process->bytes)
            continue;
        if (n < room)
            found[n] = (struct process){pid, process->bytes, ~0u, ~0u};
        n++;
    }
    *count = n;
    return n > room ? TOO_SMALL : 0;
}
