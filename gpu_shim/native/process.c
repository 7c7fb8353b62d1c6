/* What happens when the library is loaded, and in a forked child. */
#include "account.h"
#include "client.h"
#include "drain.h"
#include "gate.h"
#include "pace.h"

/* The child has none of our contexts and no helper thread yet. */
static void start_anew(void)
{
    gate_forget_all();
    drain_forget_all();
    pace_forget_all();
    account_forget_all();
}

__attribute__((constructor)) static void register_hooks(void)
{
    client_set_hooks((struct client_hooks){gate_service, gate_forget, start_anew});
}
