#ifndef RADISH_SERVE_STOP_SIGNALS_H
#define RADISH_SERVE_STOP_SIGNALS_H

#include "base/error.h"

/* SIGINT and SIGTERM of a server. Their handler needs no other thread, so that they work whatever
 * the event loop is doing:
 *
 *   while the model loads   any ─► a message, and the process dies of the signal
 *   while it serves         1, 2 ─► a descriptor becomes readable; server.c says what follows
 *                           3    ─► the process dies of the signal, whatever hangs
 *   after it has stopped    any ─► the process dies of the signal
 */
int stop_signals_catch(struct error *err); /* from now on, the model loads */
/* From now on, the server serves. Returns an eventfd that counts the signals; do not close it. */
int stop_signals_serve(void);
/* The next of the signals that have come; 0: no other. Only one thread may ask. */
int stop_signals_next(void);
void stop_signals_end(void); /* the server has stopped */

#endif
